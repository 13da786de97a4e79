use std::process::{Child, Command};

use divvy_core::units::Bytes;
use divvy_shm::ledger::Newcomer;
use divvy_shm::{ContainerConfig, DeviceConfig, GateWriter};

use super::*;
use crate::device;

const MIB: u64 = 1 << 20;

struct Tenant {
    dir: tempfile::TempDir,
    ledger: Guarded<Ledger>,
    id: ProcessId,
    child: Child,
}

/// A container with one process that introduced itself.
fn tenant(limit: u64, context_bytes: u64) -> Tenant {
    let dir = tempfile::tempdir().unwrap();
    let device =
        DeviceConfig { id: "G0".into(), memory_limit: limit, share_limit: 1000, context_bytes, ..Default::default() };
    let config = ContainerConfig { devices: vec![device], ..Default::default() };
    GateWriter::create(dir.path(), &config).unwrap();
    let ledger = LedgerFile::create(dir.path(), 1).unwrap();
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let id =
        ledger.claim_process(&Newcomer { pid: child.id(), token: 1, name: "sleep", ..Default::default() }).unwrap();
    assert!(ledger.identify_process(id, child.id(), 1));
    Tenant { dir, ledger, id, child }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tenant {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn container(&self) -> Vec<PathBuf> {
        vec![self.dir.path().to_owned()]
    }

    fn here(&self) -> Whose {
        Whose::Container(self.dir.path().to_owned())
    }
}

fn card(id: &str, processes: &[(u32, u64)]) -> Vec<Usage> {
    let process = |&(pid, mib): &(u32, u64)| device::Process { pid, memory: Bytes(mib * MIB) };
    let processes = processes.iter().map(process).collect();
    vec![Usage { device: id.into(), memory: Bytes::ZERO, busy: 0, periods: Vec::new(), processes }]
}

#[test]
fn a_process_that_never_introduced_itself_is_told_once_it_was_seen_twice() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    let seen = |audit: &mut Audit, whose: Whose| {
        audit.look(
            &tenant.container(),
            || card("G0", &[(4242, 600), (tenant.pid(), 518)]),
            |pid| {
                if pid == 4242 { whose.clone() } else { tenant.here() }
            },
        )
    };
    assert_eq!(seen(&mut audit, tenant.here()), []);
    let found = seen(&mut audit, tenant.here());
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].container.as_deref(), &found[0].what),
        (Some(tenant.dir.path()), &What::Unmanaged { pid: 4242 })
    );
    assert_eq!(seen(&mut audit, tenant.here()), [], "once");
    assert!(!audit.knows_all_on(&"G0".into()), "who knows what it does there");
    assert_eq!(seen(&mut audit, Whose::Elsewhere), [], "not our matter");
    assert!(!audit.knows_all_on(&"G0".into()), "and whoever else that is");
    seen(&mut audit, Whose::Stranger);
    assert_eq!(seen(&mut audit, Whose::Stranger)[0].container, None);
}

#[test]
fn a_process_on_a_card_it_was_not_granted_is_told() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    let mut seen = || audit.look(&tenant.container(), || card("G7", &[(tenant.pid(), 518)]), |_| tenant.here());
    seen();
    assert_eq!(seen()[0].what, What::NotGranted { pid: tenant.pid() });
}

#[test]
fn a_slot_that_names_a_neighbours_process_does_not_make_it_ones_own() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    let neighbour = super::tests::tenant(1024 * MIB, 0);
    let all = [tenant.container(), neighbour.container()].concat();
    let pid = neighbour.pid();
    let false_slot =
        tenant.ledger.claim_process(&Newcomer { pid: 9, token: 9, name: "liar", ..Default::default() }).unwrap();
    tenant.ledger.identify_process(false_slot, pid, 1);
    for _ in 0..3 {
        let found = audit.look(&all, || card("G0", &[(pid, 900)]), |_| neighbour.here());
        assert_eq!(found, [], "it is where the kernel says");
        assert!(audit.knows_all_on(&"G0".into()));
    }
    assert_eq!(tenant.ledger.held_in_all(false_slot, 0), 0);
}

#[test]
fn a_slot_that_names_a_process_of_no_container_does_not_hide_it() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    let who = Newcomer { pid: 9, token: 9, name: "liar", ..Default::default() };
    let false_slot = tenant.ledger.claim_process(&who).unwrap();
    // Of nobody's container, and the slot says otherwise.
    let stranger = std::process::id();
    tenant.ledger.identify_process(false_slot, stranger, 1);
    let mut seen = || audit.look(&tenant.container(), || card("G0", &[(stranger, 900)]), |_| Whose::Stranger);
    seen();
    let found = seen();
    assert_eq!((found.len(), &found[0].container), (1, &None));
    assert_eq!(found[0].what, What::Unmanaged { pid: stranger });
    assert!(!audit.knows_all_on(&"G0".into()));
    assert_eq!(tenant.ledger.held_in_all(false_slot, 0), 0);
}

#[test]
fn what_a_process_holds_beyond_its_books_counts_against_its_limit_and_a_context_does_not() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    tenant.ledger.charge(tenant.id, 0, Kind::Linear, 100 * MIB, 1024 * MIB).unwrap();
    let mut seen = |mib| audit.look(&tenant.container(), || card("G0", &[(tenant.pid(), mib)]), |_| tenant.here());
    seen(618);
    seen(618);
    assert_eq!(tenant.ledger.used(0), 100 * MIB, "a context of 518 MiB");
    seen(818);
    assert_eq!(tenant.ledger.used(0), 100 * MIB, "seen once it may be a difference in time");
    seen(818);
    assert_eq!(tenant.ledger.used(0), 300 * MIB, "200 MiB of stacks and heap");
    assert!(tenant.ledger.charge(tenant.id, 0, Kind::Linear, 800 * MIB, 1024 * MIB).is_err(), "no room beside them");
    seen(618);
    assert_eq!(tenant.ledger.used(0), 100 * MIB, "given back");
    assert_eq!(seen(4000), []);
    assert_eq!(seen(4000)[0].what, What::OverLimit { limit: 1024 * MIB });
}

#[test]
fn where_contexts_are_part_of_the_limit_they_are_not_forgiven() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 500 * MIB), Audit::default());
    tenant.ledger.charge(tenant.id, 0, Kind::Context, 500 * MIB, 1024 * MIB).unwrap();
    for _ in 0..2 {
        audit.look(&tenant.container(), || card("G0", &[(tenant.pid(), 518)]), |_| tenant.here());
    }
    assert_eq!(tenant.ledger.used(0), 518 * MIB, "what the driver really took");
}

#[test]
fn a_process_that_came_while_the_agent_was_away_is_found_by_its_number_in_its_own_namespace() {
    let (tenant, mut audit) = (tenant(1024 * MIB, 0), Audit::default());
    let mut late = Command::new("sleep").arg("60").spawn().unwrap();
    let namespace = super::super::registry::namespace("/proc/self/ns/pid");
    let who = Newcomer { pid: late.id(), namespace, token: 2, name: "late", ..Default::default() };
    let id = tenant.ledger.claim_process(&who).unwrap();
    for _ in 0..3 {
        let found = audit.look(&tenant.container(), || card("G0", &[(late.id(), 518)]), |_| tenant.here());
        assert_eq!(found, []);
    }
    assert_eq!(tenant.ledger.process(id).unwrap().host_pid, late.id());
    late.kill().unwrap();
    late.wait().unwrap();
}

#[test]
fn a_policy_that_kills_ends_a_containers_process_and_nobody_elses() {
    use std::os::unix::process::ExitStatusExt;
    let mut children = [(); 2].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
    let found = |container: Option<&str>, pid| Finding {
        container: container.map(PathBuf::from),
        device: "G0".into(),
        what: What::Unmanaged { pid },
    };
    watch::Policy::Kill.apply(&found(None, children[0].id()), true);
    watch::Policy::Report.apply(&found(Some("c"), children[0].id()), true);
    watch::Policy::Kill.apply(&found(Some("c"), children[1].id()), true);
    assert_eq!(children[1].wait().unwrap().signal(), Some(9));
    assert_eq!(children[0].try_wait().unwrap(), None);
    children[0].kill().unwrap();
    children[0].wait().unwrap();
}
