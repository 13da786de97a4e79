//! `fake-gpu`: looks at a simulated machine and breaks it.

use std::process::ExitCode;

use divvy_fakedriver::machine::{Inject, Machine, Setting, state_dir};

const HELP: &str = "\
usage: fake-gpu COMMAND

  show                   the cards, who uses them, how busy they were
  xid CARD CODE          the card reports an XID
  lose CARD              the card falls off the bus
  find CARD              and is back again
  ecc CARD COUNT         so many uncorrected memory errors
  heat CARD DEGREES      so hot it is
  inject SYMBOL WHAT...  calls fail or are slow, as in: inject cuMemAlloc_v2 fail=2 from=3 times=1
                                                        inject cuLaunchKernel slow=1ms pid=77
  clear                  no call fails or is slow any more

The machine is the one in $FAKE_GPU_STATE, or /run/fake-gpu, or /tmp/fake-gpu-UID.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fake-gpu: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    if matches!(words, [] | ["help" | "--help" | "-h"]) {
        println!("{HELP}");
        return Ok(());
    }
    let dir = state_dir();
    if !dir.join("machine").exists() {
        return Err(format!(
            "there is no machine in {} yet: the first program that uses the fake driver makes it",
            dir.display()
        ));
    }
    let machine = Machine::open(&dir, None).map_err(|e| e.to_string())?;
    let card = |word: &str| {
        let number = word.parse::<usize>().ok().filter(|&c| c < machine.spec.cards.len());
        number.ok_or_else(|| format!("\"{word}\" is no card: the machine has 0 to {}", machine.spec.cards.len() - 1))
    };
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("\"{word}\" is no number"));
    match words {
        ["show"] => show(&machine),
        ["xid", at, code] => machine.report_xid(card(at)?, number(code)?),
        ["lose", at] => machine.lose(card(at)?, true),
        ["find", at] => machine.lose(card(at)?, false),
        ["ecc", at, count] => machine.set(card(at)?, Setting::EccUncorrected, Some(number(count)?)),
        ["heat", at, degrees] => machine.set(card(at)?, Setting::Temperature, Some(number(degrees)?)),
        ["inject", rest @ ..] => {
            let wish = Inject::parse(&rest.join(" "))?;
            if !machine.inject(&wish) {
                return Err("too many faults are armed: clear them first".into());
            }
        }
        ["clear"] => machine.clear_injections(),
        _ => return Err(format!("what is \"{}\"?\n\n{HELP}", words.join(" "))),
    }
    Ok(())
}

fn show(machine: &Machine) {
    println!("{} driver {} cuda {}", machine.dir.display(), machine.spec.driver, machine.spec.cuda);
    for unit in machine.units() {
        let card = machine.card(unit);
        let (name, uuid) = machine.instance(unit).map_or((card.model.name, &card.uuid), |i| (i.profile.name, &i.uuid));
        let lost = if machine.is_lost(unit.card_index()) { " LOST" } else { "" };
        let (used, total) = (machine.used(unit) >> 20, machine.memory(unit) >> 20);
        let (busy, switches) = (machine.busy(unit) / 1_000_000, machine.switches(unit));
        println!(
            "{} {name} {uuid}{lost}: {used} of {total} MiB, busy {busy} ms, {switches} switches",
            unit.card_index()
        );
        for tenant in machine.tenants(unit) {
            println!(
                "    pid {} {}: {} MiB, busy {} ms",
                tenant.pid,
                tenant.name,
                tenant.used >> 20,
                tenant.busy / 1_000_000
            );
        }
    }
}
