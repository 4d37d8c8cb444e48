"""What is written from graded results: for Gradescope, for Canvas, for staff, and for students. Staff only.

Everything here is a function of `grader.result.Result`, with its students and decisions, and of the rubric. Nothing
runs code of a submission, and nothing reads a database.
"""
