"""What was recorded, as the tables of docs/reference/benchmarks.md. Every row has its day, machine, commit and command."""
import re

PAIR = r"(shared|hard|promised 1\.5 times) ([^,]*)"
TIME = re.compile(r"booked (\S+), NVML \S+, throughput (\S+) % of alone = \S+, worst second (\S+) off")
SUM = re.compile(r"(\S+) % of unmanaged in the median of \d+ rounds, surely (\S+) to (\S+)")
NATIVE = re.compile(r"(\S+) it/s, (\S+) ms of GPU time each, NVML (\S+) %, (\d+) MHz, (\d+) W")
UNMANAGED = re.compile(r"(.*) it/s, (\S+) % of alone in all")
LONE = re.compile(r"booked (\S+), NVML (\S+), throughput (\S+) % of alone")
METERED = re.compile(r"told (\S+) %, the card's counters say (\S+)")
OVERHEAD = re.compile(r"(\S+) % in \d+ processes each way, surely (\S+) to (\S+); native ones differ by (\S+) %")
CALL = re.compile(r"(?:^|, )(.+?) ([0-9.]+) -> ([0-9.]+)")
HEADS = {
    "time within 2 points over all, 5 in each second": "time",
    "each at least its request - 2 points of its lone rate": "speed",
    "limits within 2 points of time": "limits",
}
ORIGIN = ("date", "machine", "commit", "command")
PAIRS = ("programs", "judged by", "time charged, %", "speed, % of alone", "worst second, points off",
         "sum, % of without Divvy (95 % interval)", "charged against kernels, points", "holds")


def command(row):
    case = re.sub(r"^(launch cost), .*", r"\1", row["case"])
    return f'`tests/gpu/run {row["stage"]} "{case}"`'


def origin(row):
    return [row["date"], row["machine"], row["commit"], command(row)]


def holds(rows):
    said = [row["holds"] for row in rows if row["holds"] is not None]
    return "" if not said else "yes" if all(said) else "**no**"


def figures(form, row, count):
    """The figures in what was measured; a row in another form (an error) is shown as it is."""
    match = form.match(row["measured"])
    return match.groups() if match else [row["measured"]] + [""] * (count - 1)


def interval(row):
    match = row and SUM.match(row["measured"])
    return "{} ({} to {})".format(*match.groups()) if match else row["measured"] if row else ""


def table(title, text, heads, rows):
    if not rows:
        return
    print(f"\n### {title}\n" + (f"\n{text}\n" if text else ""))
    print("| " + " | ".join([*heads, *ORIGIN]) + " |\n" + "|---" * (len(heads) + len(ORIGIN)) + "|")
    for row, cells in rows:
        print("| " + " | ".join(str(cell).replace("|", "\\|") for cell in [*cells, *origin(row)]) + " |")


class Tables:
    def __init__(self, rows):
        # NVML's use by process cannot vouch for a point, and is in the file alone.
        self.left = {row["case"]: row for row in rows if not row["case"].endswith(", NVML")}

    def take(self, pattern):
        """The rows whose case is like this, with the groups. A row that was taken is in no other table."""
        matches = [(row, re.fullmatch(pattern, case)) for case, row in self.left.items()]
        taken = [(row, match.groups()) for row, match in matches if match]
        for row, _ in taken:
            del self.left[row["case"]]
        return taken

    def pairs(self):
        """Rows of programs together, by the way they were asked; what was told about one pair in several rows is one row here."""
        ways = {}
        for row, (way, programs) in self.take(PAIR):
            parts = [self.left.pop(f"{row['case']}, {about}", None) for about in ("throughput", "sum", "cross-check")]
            counted = parts[2] and re.search(r"differ by (\S+) points", parts[2]["measured"])
            ways.setdefault(way, []).append((row, [
                programs, HEADS.get(row["promised"], row["promised"]), *figures(TIME, row, 3), interval(parts[1]),
                counted.group(1) if counted else "", holds([row, *filter(None, parts)])]))
        return ways

    def simple(self, pattern, form, count, judged=True):
        return [(row, [*groups, *figures(form, row, count), *([holds([row])] if judged else [])]) for row, groups in self.take(pattern)]

    def print(self):
        pairs = self.pairs()
        table("Requests of programs that share the GPU", "Figures are by program, in the order of the first column, whose numbers are requests in percent.",
              PAIRS, pairs.pop("shared", []))
        table("Requests that add up to 1.5 GPUs", "Each program is due its part of what was reserved.", PAIRS, pairs.pop("promised 1.5 times", []))
        table("Hard limits of programs that share the GPU", "Request and limit are the same.", PAIRS, pairs.pop("hard", []))
        table("Limits of a program that is alone", "", ["program", "limit, %", "time charged, %", "NVML, %", "speed, % of alone", "holds"],
              self.simple(r"alone (\S+), limit (\S+)", LONE, 3))
        table("Programs alone, without Divvy", "", ["program", "iterations/s", "GPU time each, ms", "NVML, %", "clock, MHz", "power, W"],
              self.simple(r"native (\S+)", NATIVE, 5, judged=False))
        table("Programs that share the GPU without Divvy", "", ["programs", "iterations/s", "of alone, all together, %"],
              self.simple(r"unmanaged (.*)", UNMANAGED, 2, judged=False))
        table("Use that a container is told", "It is alone and has no limit.", ["program", "told, %", "the GPU's counters, %", "holds"],
              self.simple(r"metered (\S+)", METERED, 2))
        table("Speed that the library costs a program that is alone", "At most 1 % is promised. A row fails if the lower end of its interval is above that.",
              ["program", "lost, %", "from, %", "to, %", "processes differ by, %", "holds"], self.simple(r"overhead (\S+)", OVERHEAD, 4))
        calls = [(row, [*each, holds([row]) if each[0] == "launch" else ""]) for row, _ in self.take("cost of single calls") for each in CALL.findall(row["measured"])]
        table("Single calls", "Each is the best of three. A launch is to take at most 5 % and 0.1 us longer; here it goes into full queues, so it times the GPU.",
              ["call", "without, us", "with the library, us", "holds"], calls)
        self.plain("A launch and a boundary", lambda row: "cost" in row["case"])
        self.plain("Memory of 10 GiB", lambda row: row["stage"] == 2)
        self.plain("The arbiter is killed, stopped, or has to hand time back", lambda row: True)

    def plain(self, title, belongs):
        rows = [row for row in self.left.values() if belongs(row)]
        table(title, "", ["case", "promised", "measured", "holds"], [(row, [row["case"], row["promised"], row["measured"], holds([row])]) for row in rows])
        for row in rows:
            del self.left[row["case"]]
