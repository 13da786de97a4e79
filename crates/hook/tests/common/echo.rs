//! A driver that does nothing but say which of its functions was called, with what: for checking that every way to a function
//! ends in that function, with the arguments as they were given.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::{compile, table};

/// The folder with the echoing libcuda.so.1 and libnvidia-ml.so.1.
pub(crate) fn drivers() -> &'static Path {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let dir = tempfile::tempdir().expect("a folder for the drivers");
            build(dir.path());
            dir
        })
        .path()
}

fn build(dir: &Path) {
    let mut cuda = String::from(COMMON);
    let rows = table("cuda.tsv");
    for (index, row) in rows.iter().enumerate() {
        if row[0].starts_with("cuGetProcAddress") {
            continue; // these answer for real, below
        }
        writeln!(cuda, "{}", function(&row[0], index)).expect("string");
    }
    cuda.push_str("struct row { const char *symbol, *lookup; int since; int per_thread; void *address; };\n");
    cuda.push_str("int cuGetProcAddress(const char *, void **, int, uint64_t);\n");
    cuda.push_str("int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);\n");
    cuda.push_str("static struct row rows[] = {\n");
    for row in &rows {
        writeln!(
            cuda,
            "  {{\"{0}\", \"{1}\", {2}, {3}, (void *){0}}},",
            row[0],
            row[1],
            row[2],
            i32::from(row[3] != "-")
        )
        .expect("string");
    }
    cuda.push_str("};\n");
    cuda.push_str(LOOK_UP);
    let source = dir.join("echo-cuda.c");
    fs::write(&source, cuda).expect("writable");
    compile(&source, &dir.join("libcuda.so.1"), &["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]);

    let mut nvml = String::from(COMMON);
    for (index, row) in table("nvml.tsv").iter().enumerate() {
        writeln!(nvml, "{}", function(&row[0], index)).expect("string");
    }
    let source = dir.join("echo-nvml.c");
    fs::write(&source, nvml).expect("writable");
    compile(&source, &dir.join("libnvidia-ml.so.1"), &["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic"]);
}

/// Six arguments come in registers, the rest on the stack.
fn function(name: &str, index: usize) -> String {
    let parameters = (0..12).map(|i| format!("uint64_t a{i}")).collect::<Vec<_>>().join(", ");
    let list = (0..12).map(|i| format!("a{i}")).collect::<Vec<_>>().join(", ");
    format!("int {name}({parameters}) {{ return echo({index}, (uint64_t[12]){{{list}}}); }}")
}

/// Calls are written down in the program's own table, if it has one.
const COMMON: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
__attribute__((visibility("hidden"))) unsigned echo_counts[2048];
__attribute__((visibility("hidden"))) uint64_t echo_arguments[2048][12];
unsigned *divvy_echo_counts(void) { return echo_counts; }
uint64_t (*divvy_echo_arguments(void))[12] { return echo_arguments; }
static int echo(int index, const uint64_t *arguments) {
  // The first call since the count was set back; the library may ask for itself afterwards.
  if (!echo_counts[index]++) memcpy(echo_arguments[index], arguments, sizeof echo_arguments[0]);
  return 0;
}
"#;

/// As the real one has it: the newest form at the version, the per-thread one if asked for and the name has any.
const LOOK_UP: &str = r#"
// Of a driver newer than the tables: a function nobody knows, and a new form of one that everybody does.
int cuMemFromTheFuture(void) { return 77; }
int cuMemAlloc_v9(void) { return 79; }
static void *find(const char *name, int version, uint64_t flags) {
  if (!strcmp(name, "cuMemFromTheFuture")) return cuMemFromTheFuture;
  if (!strcmp(name, "cuMemAlloc") && version >= 14000) return cuMemAlloc_v9;
  struct row *best = NULL;
  int wanted = 0;
  for (size_t i = 0; flags == 2 && i < sizeof rows / sizeof *rows; i++) wanted |= !strcmp(rows[i].lookup, name) && rows[i].per_thread;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      if (!strcmp(rows[i].lookup, name) && rows[i].since <= version && rows[i].per_thread == wanted && (!best || rows[i].since > best->since))
        best = &rows[i];
  return best ? best->address : NULL;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  if (!name || !function) return 1;
  void *found = find(name, version, flags);
  if (found) *function = found;
  return found ? 0 : 500;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  if (!name || !function) return 1;
  *function = find(name, version, flags);
  if (status) *status = *function ? 0 : 1;
  return 0;
}
"#;
