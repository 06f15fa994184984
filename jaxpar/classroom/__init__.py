"""A class: what students start from and hand in, how it is graded in a sandbox, and the reports."""
