//! Every way to a function of the driver ends in that function, through us where we hook it.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{Container, compile, device, echo, library, program, root, run, scratch, table, write_lines};

/// The symbols that the library exports besides `dlsym` and `dlvsym`.
fn hooked() -> BTreeSet<String> {
    let nm = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    nm.lines().filter_map(|l| l.split_whitespace().nth(2)).filter(|n| !n.starts_with("dl")).map(str::to_owned).collect()
}

fn whole_card() -> Container {
    Container::new(vec![divvy_shm::DeviceConfig { whole_card: true, ..device([0; 16], 1 << 40) }])
}

#[track_caller]
fn torture(which: &str, variable: Option<&str>, inside: bool) {
    let dir = scratch();
    let route = program("route.c", dir.path(), &[]);
    let list = dir.path().join("hooked");
    write_lines(&list, hooked());
    let container = whole_card();
    let mut command = container.command(&route, echo::drivers());
    command.arg(root().join("tables").join(which)).arg(&list);
    if let Some(variable) = variable {
        command.env(variable, "1");
    }
    if !inside {
        command.env_remove("DIVVY_DIR");
    }
    let said = run(&mut command);
    println!("{said}");
    let expected = table(which).len();
    assert!(said.contains(&format!("{expected} symbols")) && said.contains(" 0 wrong"), "{said}");
}

#[test]
fn every_name_version_and_flag_reaches_the_right_function_of_the_driver() {
    torture("cuda.tsv", None, true);
}

#[test]
fn the_same_holds_outside_a_container() {
    torture("cuda.tsv", None, false);
}

#[test]
fn the_same_holds_when_the_driver_is_loaded_for_all_to_see() {
    torture("cuda.tsv", Some("ROUTE_GLOBAL"), true);
}

#[test]
fn the_same_holds_when_the_driver_is_loaded_with_deep_binding() {
    torture("cuda.tsv", Some("ROUTE_DEEPBIND"), true);
}

#[test]
fn every_function_of_nvml_is_reached_outside_a_container() {
    torture("nvml.tsv", None, false);
}

#[test]
fn no_function_minds_zeroes_for_arguments() {
    let dir = scratch();
    let nulls = program("nulls.c", dir.path(), &[]);
    let list = dir.path().join("hooked");
    let names = hooked();
    write_lines(&list, names.clone());
    let tight = Container::new(vec![device([0; 16], 0)]);
    for container in [whole_card(), tight] {
        let said = run(container.command(&nulls, echo::drivers()).arg(&list));
        assert_eq!(said.trim(), format!("{} functions", names.len()));
    }
}

/// The loader's answers with two libraries that wrap one function, preloaded in the given order.
#[track_caller]
fn loader(order: &[&str]) {
    let dir = scratch();
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    compile(&source("chain.c"), &dir.path().join("libfirst.so"), &["-DNAME=\"first\""]);
    compile(&source("chain.c"), &dir.path().join("libsecond.so"), &["-DNAME=\"second\""]);
    compile(&source("other.c"), &dir.path().join("libother.so"), &[]);
    let loader = program("loader.c", dir.path(), &["-rdynamic"]);
    let path = |name: &&str| match *name {
        "divvy" => library().display().to_string(),
        other => dir.path().join(format!("lib{other}.so")).display().to_string(),
    };
    let container = whole_card();
    let mut command = container.command(&loader, echo::drivers());
    command.env("LD_PRELOAD", order.iter().map(path).collect::<Vec<_>>().join(":")).arg(dir.path());
    if order.len() > 1 {
        command.env("DIVVY_TEST_CHAIN", "1");
    }
    assert!(run(&mut command).contains(" 0 wrong"));
}

#[test]
fn the_loader_answers_everybody_else_as_if_we_were_not_there() {
    loader(&["divvy"]);
}

#[test]
fn a_chain_of_wrappers_behind_us_stays_whole() {
    loader(&["divvy", "first", "second"]);
}

#[test]
fn a_chain_of_wrappers_before_us_and_around_us_stays_whole() {
    loader(&["first", "second", "divvy"]);
    loader(&["first", "divvy", "second"]);
}

#[test]
fn a_tool_that_wraps_the_driver_comes_before_us_and_goes_on_to_us() {
    let dir = scratch();
    let tool = dir.path().join("libtool.so");
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/tool.c"), &tool, &[]);
    let driver = echo::drivers().join("libcuda.so.1");
    let linked = program("linked.c", dir.path(), &[driver.to_str().unwrap()]);
    let container = whole_card();
    let preload = format!("{}:{}", tool.display(), library().display());
    let said = run(container.command(&linked, echo::drivers()).env("LD_PRELOAD", preload));
    assert!(said.contains("tool: 64 bytes, next is") && said.contains("libdivvy.so"), "{said}");
    assert!(said.contains("allocated: 0"), "{said}");
}

#[test]
fn without_a_driver_there_are_no_devices_and_nothing_breaks() {
    let dir = scratch();
    let absent = program("absent.c", dir.path(), &[]);
    let container = whole_card();
    for inside in [true, false] {
        let mut command = container.command(&absent, dir.path());
        if !inside {
            command.env_remove("DIVVY_DIR");
        }
        // CUDA_ERROR_NO_DEVICE and NVML_ERROR_LIBRARY_NOT_FOUND
        assert_eq!(run(&mut command).trim(), "100 12");
    }
}

#[test]
fn functions_that_the_tables_do_not_know_are_passed_on_or_refused_as_the_container_is_configured() {
    let dir = scratch();
    let future = program("future.c", dir.path(), &[]);
    let strict = divvy_shm::DeviceConfig { enforcement: divvy_shm::Enforcement::Strict, ..device([0; 16], 1 << 30) };
    let said = |container: &Container| run(&mut container.command(&future, echo::drivers()));
    let lenient = Container::new(vec![device([0; 16], 1 << 30)]);
    // Above all, a new form is never mistaken for the old one.
    assert_eq!(said(&lenient).trim(), "dlsym 77, lookup 0 0 77, newer form 0 0 79");
    assert_eq!(said(&Container::new(vec![strict])).trim(), "dlsym 0, lookup 0 1 0, newer form 0 1 0");
}
