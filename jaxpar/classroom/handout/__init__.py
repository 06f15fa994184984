"""What a class is handed out: the repository that students start from, and autograders."""
