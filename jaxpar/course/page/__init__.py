"""A lesson as a page: what it shows is recorded when it runs, and made into HTML or Markdown."""
