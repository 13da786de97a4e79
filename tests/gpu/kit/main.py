"""Runs one stage and prints the table of everything measured so far."""
import os
import sys
import time

import results
import tables

TOLD = ("promises", "tables")  # printed from what is recorded: needs no card


def main():
    stage, only = sys.argv[1] if len(sys.argv) > 1 else "1", sys.argv[2:]
    deadline = time.monotonic() + float(os.environ.get("BUDGET", "520"))
    default = results.RECORDED if stage in TOLD else "/tmp/divvy-gpu-results.jsonl"
    book = results.Book(os.environ.get("RESULTS", default), int(stage) if stage.isdigit() else None)
    if stage in TOLD:
        book.print_promises()
        return stage == "promises" or tables.Tables(book.rows).print()
    module = {"1": "shares", "2": "memory", "3": "models"}.get(stage)
    if module is None:
        sys.exit("usage: run 1|2|3 [case...], or run promises|tables")
    try:
        __import__(module).run(book, deadline, only)
    finally:
        book.print_table()
    sys.exit(0 if book.all_hold() else 1)


main()
