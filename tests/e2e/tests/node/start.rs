//! A container starts with exactly its slice, or not at all.

use super::kit::{CARDS, SOON, pod, site, slice};

#[test]
fn a_container_has_exactly_its_slice() {
    let mut site = site();
    let kubectl = site.namespace();
    let script = "env; cat /etc/ld.so.preload; ls -l /run/divvy /usr/local/lib/divvy; mount | grep divvy; sleep 3600";
    let one = pod("one", &[("main", "main", vec![slice(CARDS[1], 4096, 300)], script)]);
    kubectl.create(&one.to_string()).unwrap();
    kubectl.wait_phase("one", "Running", SOON).unwrap_or_else(|e| panic!("{e:#}\n{}", site.agent_log()));
    let said = kubectl.say(&["logs", "one"]).unwrap();
    println!("{said}");
    assert!(said.contains(&format!("NVIDIA_VISIBLE_DEVICES={}\n", CARDS[1])), "{said}");
    assert!(said.contains("\n/usr/local/lib/divvy/libdivvy.so\n"), "{said}");
}
