//! `divvy sim` from outside: files in, files out, and one message where something is wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn divvy(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_divvy")).current_dir(dir).args(args).output().unwrap()
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,16000,65536,2,T4\nn1,16000,65536,1,G2\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,event\n\
                    c,4000,8192,1,1000,G2,BE,add\na,4000,8192,1,600,,LS,add\nb,4000,8192,1,400,,LS,add\nd,4000,8192,0,0,,BE,add\n\
                    e,4000,8192,2,1000,,BE,add\n";

#[test]
fn placements_are_written_as_a_referee_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "n.csv", NODES);
    write(dir.path(), "p.csv", PODS);
    for (policy, target) in [("frag", None), ("frag", Some("p.csv")), ("binpack", None), ("hami", None)] {
        let mut args =
            vec!["sim", "place", "--nodes", "n.csv", "--pods", "p.csv", "--policy", policy, "--out", "out.csv"];
        args.extend(target.iter().flat_map(|target| ["--target", target]));
        let output = divvy(dir.path(), &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(dir.path().join("out.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "pod,node,gpus");
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[1], "c,n1,0", "{policy}: {text}");
        assert!(lines[4].starts_with("d,n") && lines[4].ends_with(','), "{text}");
        if policy == "frag" {
            assert_eq!(lines[2][2..], lines[3][2..], "600 and 400 make a card: {text}");
        }
    }
}

#[test]
fn a_mistake_is_one_message_with_line_and_field_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "n.csv", NODES);
    write(dir.path(), "p.csv", PODS);
    write(dir.path(), "bad.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\nb,1,many,1,500\n");
    let place = ["sim", "place", "--nodes", "n.csv", "--out", "out.csv"];
    let cases: [(&[&str], &str); 6] = [
        (&["--pods", "bad.csv"], "divvy: bad.csv: line 3, field memory_mib: `many` is not a whole number in range\n"),
        (&["--pods", "p.csv", "--target", "bad.csv"], "divvy: bad.csv: line 3, field memory_mib"),
        (&["--pods", "none.csv"], "divvy: none.csv cannot be read"),
        (&["--pods", "n.csv"], "divvy: n.csv: line 1: column name, num_gpu, gpu_milli is missing"),
        (&["--pods", "p.csv", "--policy", "best"], "divvy: --policy: there is no policy `best`; there are "),
        (&["--pods", "p.csv", "--policy", "hami", "--out", "no/such/place.csv"], ""),
    ];
    for (more, said) in cases {
        let output = divvy(dir.path(), &[&place[..if more.contains(&"--out") { 4 } else { 6 }], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {stderr}");
        assert!(stderr.starts_with(said), "{more:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
        assert!(!dir.path().join("out.csv").exists() && !dir.path().join("out.csv.part").exists());
    }
    let output = divvy(dir.path(), &["sim", "compare", "--lists", "other", "--seeds", "1", "--csv", "out.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no list `other`; there are default, cpu050"));
    assert!(!dir.path().join("out.csv").exists());
    fs::create_dir(dir.path().join("folder")).unwrap();
    let output = divvy(dir.path(), &["sim", "place", "--nodes", "n.csv", "--pods", "p.csv", "--out", "folder"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!dir.path().join("folder.part").exists(), "nothing is left behind");
    for (more, said) in [
        (&["churn", "--seeds", "0"][..], "divvy: --seeds: at least one seed is needed"),
        (&["churn", "--then", "other"], "divvy: --then: there is no list `other`; there are default"),
        (&["compare", "--policies", "best"], "divvy: --policies: there is no policy `best`; there are "),
        (&["record", "--policy", "fgd", "--out", "out.csv"], "divvy: --policy: there is no policy `fgd`; there are "),
    ] {
        let output = divvy(dir.path(), &[&["sim"][..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with(said), "{more:?}: {stderr}");
    }
}

#[test]
fn files_are_read_as_other_programs_write_them() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "n.csv", &format!("\u{feff}{}", NODES.replace('\n', "\r\n")));
    write(dir.path(), "none.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n");
    let pods = "\"name\",\"cpu_milli\",\"memory_mib\",\"num_gpu\",\"gpu_milli\",\"gpu_spec\",\"more\",\"event\"\n\
                \"x,1\",\"4000\",8192,1,1000,\"G2|K80\",z,add\n\"x,1\",,,,,,,del\n\"y\",4000,8192,1,1000,\"G2\",,add";
    write(dir.path(), "p.csv", pods);
    let args = ["sim", "place", "--nodes", "n.csv", "--pods", "p.csv", "--target", "none.csv", "--out", "out.csv"];
    let output = divvy(dir.path(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(dir.path().join("out.csv")).unwrap(), "pod,node,gpus\n\"x,1\",n1,0\ny,n1,0\n");
}

#[test]
fn a_comparison_prints_a_table_and_writes_figures_and_a_plot() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "compare",
        "--lists",
        "multigpu50",
        "--policies",
        "first-fit,frag",
        "--seeds",
        "1",
        "--csv",
        "all.csv",
        "--plot",
        "all.svg",
    ];
    let output = divvy(dir.path(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("multigpu50") && table.contains("mean") && table.contains("frag"), "{table}");
    let figures = fs::read_to_string(dir.path().join("all.csv")).unwrap();
    let of = |who: &str| {
        let line = figures.lines().find(|line| line.contains(who)).unwrap();
        line.split(',').nth(3).unwrap().parse::<f64>().unwrap()
    };
    assert!(of("frag") < of("first-fit"), "{figures}");
    assert!(fs::read_to_string(dir.path().join("all.svg")).unwrap().contains("</svg>"));
}
