"""What was measured, what was promised, and whether it holds: one line of JSON each, so that a stage can go on where it stopped.
Of two lines about the same case the later counts. Those marked "before", from earlier programs, are asked again."""
import json
import os
import time

# What is promised, where the promise alone does not say.
ABOUT = {
    "each at least its request - 2 points of its lone rate": "programs that leave the GPU idle at times: speed of each",
    ">= 98 %": "the same: work of all, of that without Divvy",
    "time within 2 points over all, 5 in each second": "programs that fill the GPU: time of each",
    "as exact as time: within 2 points": "the same: work of each",
    ">= 99 %": "the same: work of all, of that without Divvy",
    "<= 3": "the same: points between time charged and kernels counted",
    "limits within 2 points of time": "hard limits, two programs",
    "within 2 points of time": "hard limits, one program",
    "within 3 points": "use that a container is told, of the GPU's own counters",
    "<= 1 %": "speed that the library costs a program that is alone",
    "<= 25 ns between boundaries": "a launch, longer by",
    "0 wrong": "answers of the memory limit, way by way",
    "total 10, OutOfMemoryError near 10 GiB, and again": "frameworks in 10 GiB",
    "every stream moves within 1 s": "the arbiter is killed or stopped",
    "starts and lets the program through": "profilers and sanitizers",
}


RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "results-h200.jsonl")


def machine():
    import nvml
    card = nvml.Card()
    return f"{card.name().removeprefix('NVIDIA ')}, driver {card.driver()}"


def commit():
    """What the programs were built from, as `bundle` wrote it down."""
    path = os.path.join(os.environ.get("GPU_KIT", ""), "commit")
    return open(path).read().strip() if os.path.exists(path) else "unknown"


class Book:
    def __init__(self, path, stage=None):
        self.path, self.stage, self.origin = path, stage, None
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
        self.origin = self.origin or {"machine": machine(), "commit": commit(), "stage": self.stage}
        row = {"case": case, "measured": measured, "promised": promised, "holds": holds, **more,
               "date": time.strftime("%Y-%m-%d", time.gmtime()), **self.origin}
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

    def print_promises(self):
        """How often each promise was asked for and held, as Markdown. Promises that one row alone is about are one line together."""
        asked = [row for row in self.rows if row["holds"] is not None]
        alike = {}
        for row in asked:
            alike.setdefault(row["promised"], []).append(row)
        told = list(ABOUT)
        groups = [(p, rows) for p, rows in alike.items() if len(rows) > 1]
        groups.sort(key=lambda group: told.index(group[0]) if group[0] in told else len(told))
        groups.append(("each its own", [rows[0] for rows in alike.values() if len(rows) == 1]))
        print("| about | promised | asked | holds | does not |\n|---|---|---|---|---|")
        for promise, rows in groups + [("", asked)]:
            about = ABOUT.get(promise, "all" if rows is asked else "other questions")
            broken = [row["case"] for row in rows if not row["holds"]]
            print(f"| {about} | {promise} | {len(rows)} | {len(rows) - len(broken)} | {', '.join(broken)} |")

    def print_table(self):
        if not self.rows:
            return
        wide = [max(len(str(row[k])) for row in self.rows) for k in ("case", "promised")]
        print()
        for row in self.rows:
            print(f"{self.mark(row['holds']):5} {row['case']:<{wide[0]}}  {row['promised']:<{wide[1]}}  {row['measured']}")
        count = [sum(row["holds"] is h for row in self.rows) for h in (True, False)]
        print(f"\n{count[0]} hold, {count[1]} do not", flush=True)
