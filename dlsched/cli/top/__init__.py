"""`dlsched top`: jobs, limits and reasons, live in a terminal. It only reads. Only this package
imports Textual, and only once the command is used: the import takes as long as two calls of `ps`.
"""
