"""What was measured, what was promised, and whether it holds: one line of JSON each, so that a stage can go on where it stopped.
Of two lines about the same case the later counts. Those marked "before", from earlier programs, are asked again."""
import json
import os


class Book:
    def __init__(self, path):
        self.path = path
        self.rows = []
        if os.path.exists(path):
            with open(path) as lines:
                latest = {row["case"]: row for row in (json.loads(line) for line in lines if line.strip())}
                self.rows = list(latest.values())
        self.seen = {row["case"] for row in self.rows if not row.get("before")}

    def has(self, case):
        return case in self.seen

    def add(self, case, measured, promised="", holds=None, **more):
        """`holds` is True, False, or None for what is only told."""
        row = {"case": case, "measured": measured, "promised": promised, "holds": holds, **more}
        self.rows = [r for r in self.rows if r["case"] != case] + [row]
        self.seen.add(case)
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"   {self.mark(holds):5} {case}: {measured}   [{promised}]", flush=True)

    def value(self, case):
        for row in self.rows:
            if row["case"] == case:
                return row.get("value")
        return None

    @staticmethod
    def mark(holds):
        return {True: "ok", False: "FAIL", None: ""}[holds]

    def all_hold(self):
        return all(row["holds"] is not False for row in self.rows)

    def print_table(self):
        if not self.rows:
            return
        wide = [max(len(str(row[k])) for row in self.rows) for k in ("case", "promised")]
        print()
        for row in self.rows:
            print(f"{self.mark(row['holds']):5} {row['case']:<{wide[0]}}  {row['promised']:<{wide[1]}}  {row['measured']}")
        count = [sum(row["holds"] is h for row in self.rows) for h in (True, False)]
        print(f"\n{count[0]} hold, {count[1]} do not", flush=True)
