#!/usr/bin/env python3
"""Rewrites cuda.tsv, nvml.tsv and types.tsv from the public headers in NVIDIA's PyPI wheels.

    python3 tables/from_headers.py            # fetches the pinned wheels with pip
    python3 tables/from_headers.py --check    # the same, and fails if a table would change

What a person decides (the class of a driver symbol, the action of an NVML function, the exported symbol a lookup name
stands for) is kept from the existing tables; what the headers say (names, versions, argument lists, sizes) is taken from
the headers. A symbol the headers have and the table has not is added with class "?", which the tests refuse.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).parent
WHEELS = {
    "cuda": "nvidia-cuda-runtime==13.0.96",
    "nvml": "nvidia-nvml-dev==13.4.92",
    "nvml-old": "nvidia-nvml-dev==13.0.87",
}
CUDA_HEADER = """\
# The CUDA driver API, one exported symbol per line.
# Source: cudaTypedefs.h, cudaGLTypedefs.h, cudaEGLTypedefs.h, cudaVDPAUTypedefs.h and cudaProfilerTypedefs.h
# of the PyPI wheel nvidia-cuda-runtime 13.0 (rewritten by from_headers.py; the class column is ours).
# lookup: the name a program gives to cuGetProcAddress; since: the lowest version at which that name means this symbol.
# stream: "-", or "ptsz"/"ptds" where the symbol is the per-thread default stream variant.
# class: L loader, M device-memory ledger, H pinned host ledger, O needed only with oversubscription, C compute gate,
#        X copy or set (gate optional), S sync and stream bookkeeping, V device view, - pass through.
# symbol	lookup	since	stream	class	arguments
"""
NVML_HEADER = """\
# NVML, one exported symbol per line. Source: nvml.h of the PyPI wheels nvidia-nvml-dev 13.0 and 13.4
# (rewritten by from_headers.py; the action column is ours).
# action: virtual = answered from our ledger; filter = other tenants dropped, pids translated; scale = the tenant's own share;
#         device-set = devices renumbered or limited; deny = NVML_ERROR_NO_PERMISSION; lifecycle; pass.
# symbol	action	since	arguments
"""
TYPES_HEADER = """\
# The types of the argument lists in cuda.tsv and nvml.tsv that are passed by value or pointed to.
# kind: int, float, pointer, struct (of "size" bytes; 64-bit Linux), opaque (only ever pointed to).
# Source: the same headers, asked by the C compiler (rewritten by from_headers.py).
# type	kind	size
"""

# Types of other vendors' headers (GL, EGL, VDPAU), which the compiler cannot be asked for here.
FOREIGN = {
    **dict.fromkeys(("CUGLDeviceList", "CUoutput_mode", "EGLint", "GLenum", "GLuint"), ("int", "4")),
    **dict.fromkeys(("VdpDevice", "VdpOutputSurface", "VdpVideoSurface"), ("int", "4")),
    **dict.fromkeys(("CUeglStreamConnection", "EGLImageKHR", "EGLStreamKHR", "EGLSyncKHR", "VdpGetProcAddress"), ("pointer", "8")),
    "CUeglFrame_v1": ("struct", "-"),
}


def unpack(folder):
    """Fetches the wheels and returns the include folder of each."""
    roots = {}
    for key, wheel in WHEELS.items():
        target = folder / key
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", target, wheel],
            check=True,
        )
        with zipfile.ZipFile(next(target.glob("*.whl"))) as archive:
            archive.extractall(target)
        roots[key] = next(target.rglob("include"))
    return roots


def arguments(text):
    """Brings a C parameter list into one form: `const void* src, size_t bytes`."""
    text = " ".join(text.replace("CUDAAPI", " ").split())
    if text in ("", "void"):
        return ""
    parts = []
    for number, part in enumerate(text.split(",")):
        part = part.strip()
        match = re.fullmatch(r"(.*?)\s*(\**)\s*([A-Za-z_]\w*)\s*(\[\s*\])?", part)
        base, stars, name, array = match.groups()
        if not base:  # a parameter without a name
            base, name = name, f"arg{number}"
        while base.endswith("*"):
            base, stars = base[:-1].rstrip(), stars + "*"
        base = {"unsigned": "unsigned int", "unsigned long long int": "unsigned long long"}.get(base, base)
        base = re.sub(r"^struct (\w+)$", r"\1", base)
        parts.append(f"{base}{stars}{'*' if array else ''} {name}")
    return ", ".join(parts)


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]


def cuda(include):
    """Joins the typedefs (lookup name, version, stream, arguments) with the existing rows (symbol, class)."""
    typedef = re.compile(r"typedef\s+CUresult\s*\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)\((.*?)\);", re.S)
    known = {(lookup, int(since), stream): (symbol, kind) for symbol, lookup, since, stream, kind, _ in rows(HERE / "cuda.tsv")}
    found = {}
    for header in ("cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaProfilerTypedefs.h"):
        for lookup, since, stream, args in typedef.findall((include / header).read_text()):
            if lookup.startswith("cuWGL"):  # Windows only
                continue
            found[lookup, int(since), stream or "-"] = arguments(args)
    lines = []
    for key, args in found.items():
        symbol, kind = known.get(key, (f"{key[0]}?", "?"))
        lines.append([symbol, key[0], str(key[1]), key[2], kind, args])
    for key in known.keys() - found.keys():
        print(f"gone from the headers: {key}", file=sys.stderr)
    lines.sort(key=lambda row: (row[1], row[3], int(row[2])))
    return CUDA_HEADER + "".join("\t".join(row) + "\n" for row in lines)


def nvml(new, old):
    prototype = re.compile(r"nvmlReturn_t\s+(?:DECLDIR\s+)?(nvml\w+)\s*\((.*?)\)\s*;", re.S)
    actions = {row[0]: row[1] for row in rows(HERE / "nvml.tsv")}
    in_old = {name for name, _ in prototype.findall(strip_comments((old / "nvml.h").read_text()))}
    found = dict(prototype.findall(strip_comments((new / "nvml.h").read_text())))
    lines = []
    for name, args in found.items():
        since = "13.0 or older" if name in in_old else "13.1-13.4"
        lines.append([name, actions.get(name, "?"), since, arguments(args)])
    text = strip_comments((new / "nvml.h").read_text())
    for name in ("const char* DECLDIR nvmlErrorString", "const DECLDIR char* nvmlErrorString"):
        if name in text and not any(row[0] == "nvmlErrorString" for row in lines):
            lines.append(["nvmlErrorString", actions.get("nvmlErrorString", "pass"), "13.0 or older", "nvmlReturn_t result"])
    lines.sort()
    return NVML_HEADER + "".join("\t".join(row) + "\n" for row in lines)


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def types(tables, roots):
    """Asks the compiler for the kind and size of each base type of the argument lists."""
    bases = {}
    for table, header in tables:
        for line in table.splitlines():
            if line.startswith("#"):
                continue
            for part in filter(None, line.split("\t")[-1].split(", ")):
                base = part.rsplit(" ", 1)[0].replace("const ", "").rstrip("*").strip()
                bases.setdefault(base, header)
    bases.pop("void", None)
    lines = [[base, *FOREIGN[base]] for base in bases if base in FOREIGN]
    for base in sorted(bases.keys() - FOREIGN.keys()):
        program = (
            f"#include <{bases[base]}>\n#include <stdio.h>\n"
            f"int main(void){{ {base} *v = 0; printf(\"%d %zu\\n\", __builtin_classify_type(*v), sizeof *v); return 0; }}\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            source, binary = pathlib.Path(folder) / "t.c", pathlib.Path(folder) / "t"
            source.write_text(program)
            done = subprocess.run(
                ["gcc", "-w", "-D__CUDA_API_VERSION_INTERNAL", "-I", roots["cuda"], "-I", roots["nvml"], "-o", binary, source], capture_output=True, text=True
            )
            if done.returncode:  # an incomplete type
                lines.append([base, "opaque", "-"])
                continue
            kind, size = subprocess.run([binary], capture_output=True, text=True, check=True).stdout.split()
        name = {"1": "int", "2": "int", "3": "int", "5": "pointer", "8": "float"}.get(kind, "struct")
        lines.append([base, name, size])
    lines.sort()
    return TYPES_HEADER + "".join("\t".join(row) + "\n" for row in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a table would change")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        roots = unpack(pathlib.Path(folder))
        cuda_text, nvml_text = cuda(roots["cuda"]), nvml(roots["nvml"], roots["nvml-old"])
        new = {
            "cuda.tsv": cuda_text,
            "nvml.tsv": nvml_text,
            "types.tsv": types([(cuda_text, "cuda.h"), (nvml_text, "nvml.h")], roots),
        }
    changed = [name for name, text in new.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    for name in changed:
        if not check:
            (HERE / name).write_text(new[name])
    print(f"changed: {', '.join(changed) or 'nothing'}")
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()
