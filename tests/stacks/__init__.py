"""Real serving and training programs: what they export and print, and whether it is read rightly.

`table` lists them. `programs/` has a small program for each, `making` runs one and keeps an extract
under `fixtures/`, `reading` compares an extract with the truth that the program measured.
"""
