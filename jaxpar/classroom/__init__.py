"""A class: what students start from and hand in, how it is graded in a sandbox, and the reports.

The worker, reader and judge of `jaxpar.grading` judge here as they do at home, but the first
two run in a sandbox. The students of a class are found (`downloads`), what each handed in is read
(`handins`) and judged (`grader`), each judgement becomes a record that is kept in the journal
(`records`, `journal`), each student's records become a result (`results`), and reports are written
from the results of all students and what a person adds (`gradebook`, `marks`, `reports/`).
"""
