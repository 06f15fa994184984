"""A class: what students start from and hand in, how it is graded in a sandbox, and the reports.

The worker, reader and judge of `jaxpar.grading` judge here as they do at home, but the first
two run in a sandbox. A hand-in (`handins`) is judged (`grader`), each judgement becomes a record
that is kept in the journal (`records`, `journal`), each student's records become a result
(`results`), and reports are written from the results of all students (`gradebook`, `reports/`).
"""
