//! What the library says to the agent, and that it works as well when nobody listens.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use common::fake::{Machine, kit};
use common::{Container, Running, run};

const GIB: u64 = 1 << 30;

/// Listens on the agent's socket as the argument says: "answer", "silent" (accepts and says nothing), "busy" (accepts nobody).
const AGENT: &str = "
import os, socket, struct, sys
manner, path = sys.argv[1], sys.argv[2]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(1)
print('ready', flush=True)
kept = []
while True:
    if manner == 'busy':
        import time; time.sleep(60)
    line, _ = listener.accept()
    kept.append(line)
    pid = struct.unpack('iII', line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    farewell = 'hung up'
    while manner == 'answer':
        try:
            frame = line.recv(65536)
        except ConnectionResetError:
            frame, farewell = b'', 'did not wait for our welcome'
        if not frame:
            print(farewell, pid, flush=True)
            line.close()
            break
        magic, kind, length = struct.unpack_from('<III', frame)
        if kind == 1:
            slot, own, generation, token, layout = struct.unpack_from('<IIQQI', frame, 12)
            print('hello', pid, own, slot, layout, flush=True)
            try:
                line.send(struct.pack('<IIIIIQ', magic, 2, 16, 0, pid, 1))
            except BrokenPipeError:
                farewell = 'did not wait for our welcome'
        else:
            what, device, value, more = struct.unpack_from('<IIQQ', frame, 12)
            print('event', what, device, value, more, flush=True)
";

fn agent(container: &Container, manner: &str) -> (Running, BufReader<ChildStdout>) {
    let mut command = Command::new("python3");
    command.args(["-c", AGENT, manner]).arg(container.dir.path().join("agent.sock")).stdout(Stdio::piped());
    let mut child: Child = command.spawn().expect("python3 starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next(&mut lines), "ready");
    (Running(child), lines)
}

fn next(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("the agent speaks");
    line.trim().to_owned()
}

#[test]
fn a_process_says_who_it_is_once_and_what_it_was_refused_and_keeps_no_connection() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, GIB)]);
    let (_agent, mut lines) = agent(&container, "answer");
    let child = machine.inside(&container, kit("limit")).arg("plain").stdout(Stdio::null()).spawn().expect("starts");
    let pid = child.id();
    let child = Running(child);
    let (hello, hung_up) = (format!("hello {pid} {pid} 0 1"), format!("hung up {pid}"));
    let impatient = format!("did not wait for our welcome {pid}");
    // Where the machine stands still for a tenth of a second nobody is welcomed in time, and introduces itself again.
    let (mut welcomed, mut late) = (0, 0);
    let event = loop {
        assert_eq!(next(&mut lines), hello);
        let line = next(&mut lines);
        match line {
            _ if line == hung_up => welcomed += 1,
            _ if line == impatient => late += 1,
            event => break event,
        }
    };
    assert!(welcomed == 1 || (welcomed == 0 && late > 0), "{welcomed} introductions, and {late} that were not heard");
    // The first refusal is told, with what was asked for and what is in use; those right after it are not.
    assert_eq!(event, format!("event 1 0 {} 0", GIB + 512));
    assert!([hung_up, impatient].contains(&next(&mut lines)));
    child.end();
}

#[test]
fn an_agent_that_does_not_answer_holds_a_process_for_a_tenth_of_a_second_and_no_longer() {
    for manner in ["silent", "busy"] {
        let machine = Machine::new("H200");
        let container = Container::new(vec![machine.slice(0, 10 * GIB)]);
        let (_agent, _) = agent(&container, manner);
        // The queue of one who accepts nobody is full after a few.
        let crowd: Vec<Running> = (0..4)
            .map(|_| {
                Running(
                    machine.inside(&container, kit("crowd")).arg("5").stdout(Stdio::null()).spawn().expect("starts"),
                )
            })
            .collect();
        let begun = Instant::now();
        let said = run(&mut machine.inside(&container, kit("crowd")));
        let took: f64 = said.split_whitespace().nth(1).and_then(|t| t.parse().ok()).expect("a time");
        assert!(said.starts_with("0 "), "{manner}: {said}");
        // A tenth of a second for the introduction, and room for a busy machine.
        assert!(took < 20.0 && begun.elapsed().as_secs() < 60, "{manner}: {said}");
        drop(crowd);
    }
}
