use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse;
use axum::routing::{get, post};

use super::*;
use crate::run::Tasks;

/// What a caller may wait for in a test, on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(20);

/// A port with these routes while `callers` talk to it on a thread of their own.
async fn with_port(limits: Limits, routes: Router, callers: impl FnOnce(SocketAddr) + Send + 'static) {
    with(Port { limits, ..Port::new(bind(([127, 0, 0, 1], 0).into()).unwrap(), routes) }, callers).await;
}

async fn with(port: Port, callers: impl FnOnce(SocketAddr) + Send + 'static) {
    let address = port.listener.local_addr().unwrap();
    let mut tasks = Tasks::new();
    tasks.add("http", port.serve(tasks.stop()));
    let done = tokio::task::spawn_blocking(move || callers(address));
    tasks
        .run_until(async {
            done.await.unwrap();
            "the callers are done"
        })
        .await
        .unwrap();
}

fn plain() -> Router {
    Router::new().route("/", get(|| async { "ok" })).route("/healthz", get(|| async { "ok" }))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Asks on a connection of its own, which ends with the answer.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

fn get_once(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
}

/// Asks once on an open connection, and reads the head and the two letters of the answer.
fn ask_on(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\nok") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "cut off in {:?}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    String::from_utf8(said).unwrap().to_lowercase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_keeps_a_connection_open_is_answered_and_told_that_it_ends() {
    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = Tasks::new();
    tasks.add("http", serve(listener, plain(), None, tasks.stop()));
    let (asked, was_asked) = tokio::sync::oneshot::channel();
    let caller = std::thread::spawn(move || {
        let mut stream = connect(address);
        assert!(!ask_on(&mut stream).contains("connection: close"));
        asked.send(()).unwrap();
        // Whenever it is told, it is told with an answer.
        while !ask_on(&mut stream).contains("connection: close") {}
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "and then the connection ends");
    });
    tasks
        .run_until(async {
            was_asked.await.unwrap();
            "it was asked"
        })
        .await
        .unwrap();
    caller.join().unwrap();
}

fn hasty() -> Limits {
    let short = Duration::from_millis(200);
    let times = Times { head: short, body: short, idle: Duration::from_secs(60), ..Limits::default().times };
    Limits { times, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_half_a_head_and_half_a_body_are_cut_and_an_idle_connection_is_not() {
    let routes = plain().route("/put", post(|body: Bytes| async move { body.len().to_string() }));
    with_port(hasty(), routes, |address| {
        let mut idle = connect(address);
        ask_on(&mut idle);
        let head = "POST /put HTTP/1.1\r\nHost: here\r\n";
        let later_head = {
            let mut stream = connect(address);
            ask_on(&mut stream);
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let mut slow = vec![later_head];
        for said in ["".to_owned(), head.to_owned(), format!("{head}Content-Length: 9\r\n\r\n12345")] {
            let mut stream = connect(address);
            stream.write_all(said.as_bytes()).unwrap();
            slow.push(stream);
        }
        for (which, stream) in slow.iter_mut().enumerate() {
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            assert!(
                !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
                "{which}: still open"
            );
            assert!(rest.is_empty(), "{which}: {}", String::from_utf8_lossy(&rest));
        }
        ask_on(&mut idle);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_tls_handshake_is_cut() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = Certificate::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes());
    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = Port { limits: hasty(), certificate: Some(certificate.unwrap()), ..Port::new(listener, plain()) };
    with(port, |address| {
        let mut stream = connect(address);
        // The first bytes of a client's hello: its record says 512 bytes.
        stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "still open");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_hundred_silent_connections_keep_nobody_from_an_answer() {
    with_port(Limits::default(), plain(), |address| {
        let mut kept = connect(address);
        ask_on(&mut kept);
        let _silent: Vec<TcpStream> = (0..600).map(|_| connect(address)).collect();
        let began = Instant::now();
        assert!(ask(address, &get_once("/healthz")).ends_with("ok"));
        assert!(ask(address, &get_once("/")).ends_with("ok"));
        assert!(began.elapsed() < Limits::default().times.head / 2, "not because the silent ones were cut for it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_address_ends_its_own_connections_first() {
    with_port(Limits { connections: 16, ..Limits::default() }, plain(), |address| {
        let socket = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut other = socket.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let stream = socket.connect(address).await.unwrap().into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            stream
        });
        ask_on(&mut other);
        let flood: Vec<TcpStream> = (0..64).map(|_| connect(address)).collect();
        // Answered behind all of them, so that each has been let in.
        assert!(ask(address, &get_once("/")).ends_with("ok"));
        ask_on(&mut other);
        drop(flood);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_in_the_making_is_not_ended_for_newcomers() {
    let (free, is_free) = watch::channel(false);
    let wait = move || {
        let mut is_free = is_free.clone();
        async move {
            let _ = is_free.wait_for(|free| *free).await;
            "ok"
        }
    };
    let routes = plain().route("/wait", get(wait));
    with_port(Limits { connections: 8, ..Limits::default() }, routes, move |address| {
        let mut working = connect(address);
        working.write_all(get_once("/wait").as_bytes()).unwrap();
        let _silent: Vec<TcpStream> = (0..32).map(|_| connect(address)).collect();
        assert!(ask(address, &get_once("/")).ends_with("ok"));
        free.send(true).unwrap();
        let mut said = String::new();
        working.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("ok"), "{said:?}");
    })
    .await;
}

/// Counts how many of these are held at once.
struct Held(&'static AtomicUsize, Vec<u8>);

impl Held {
    fn new(count: &'static AtomicUsize) -> Held {
        count.fetch_add(1, Ordering::SeqCst);
        Held(count, vec![b'x'; 8 << 20])
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_hold_a_bounded_number_of_answers_and_are_cut() {
    static HELD: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let large = || async {
        let body = Held::new(&HELD);
        MOST.fetch_max(HELD.load(Ordering::SeqCst), Ordering::SeqCst);
        Bytes::from_owner(body).into_response()
    };
    let routes = plain().route("/large", get(large));
    let mut limits = Limits { answers: 3, ..Limits::default() };
    limits.times.stall = Duration::from_millis(500);
    with_port(limits, routes, |address| {
        let slow: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut stream = connect(address);
                stream.write_all(get_once("/large").as_bytes()).unwrap();
                stream
            })
            .collect();
        assert!(ask(address, &get_once("/healthz")).ends_with("ok"), "probes wait for nobody");
        assert!(ask(address, &get_once("/large")).len() > 8 << 20, "it has its turn when they are cut");
        assert!((1..=3).contains(&MOST.load(Ordering::SeqCst)), "{MOST:?} answers were held at once");
        drop(slow);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded_in_size_and_large_ones_in_number() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let put = |body: Bytes| async move {
        if body.len() > limits::SMALL {
            MOST.fetch_max(INSIDE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
        body.len().to_string()
    };
    let routes = plain().route("/put", post(put)).layer(DefaultBodyLimit::disable());
    with_port(Limits::default(), routes, |address| {
        let of = |length: usize| {
            let head =
                format!("POST /put HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            head + &"x".repeat(length)
        };
        let chunked = |chunks: usize| {
            let head = "POST /put HTTP/1.1\r\nHost: here\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
            head.to_owned() + &format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(chunks) + "0\r\n\r\n"
        };
        assert!(ask(address, &of(10)).ends_with("\r\n\r\n10"));
        assert!(ask(address, &of(3 << 20)).ends_with(&format!("\r\n\r\n{}", 3 << 20)));
        assert!(ask(address, &chunked(48)).ends_with(&format!("\r\n\r\n{}", 3 << 20)));
        // It says so before it is sent, so that the answer comes.
        let declared = format!("POST /put HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", (3 << 20) + 1);
        assert!(ask(address, &declared).starts_with("HTTP/1.1 413"));
        assert!(!ask(address, &chunked(49)).contains("HTTP/1.1 200"));
        // Two that dawdle with a large body hold both places: a small one passes, a third large one waits for them to be cut.
        let dawdlers: Vec<TcpStream> = (0..2)
            .map(|_| {
                let mut stream = connect(address);
                stream.write_all(&of(1 << 20).as_bytes()[..1 << 19]).unwrap();
                stream
            })
            .collect();
        assert!(ask(address, &of(100)).ends_with("\r\n\r\n100"));
        drop(dawdlers);
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(move || ask(address, &of(1 << 20)))).collect();
        for thread in threads {
            assert!(thread.join().unwrap().contains("200 OK"));
        }
        assert!((1..=2).contains(&MOST.load(Ordering::SeqCst)), "{MOST:?} large bodies at once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_bounded_apart_from_answers() {
    let endless = || async {
        let body = axum::body::Body::new(Endless);
        ([(axum::http::header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    };
    let limits = Limits { streams: 2, answers: 1, ..Limits::default() };
    with_port(limits, plain().route("/stream", get(endless)), |address| {
        let open = || {
            let mut stream = connect(address);
            stream.write_all(get_once("/stream").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            (String::from_utf8_lossy(&first).into_owned(), stream)
        };
        let streams: Vec<(String, TcpStream)> = (0..3).map(|_| open()).collect();
        let said: Vec<&str> = streams.iter().map(|(said, _)| said.as_str()).collect();
        assert_eq!(said, ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 503"]);
        assert!(ask(address, &get_once("/")).ends_with("ok"));
    })
    .await;
}

/// Never says anything.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_begin_as_http_does_is_told_of_and_turned_away() {
    static TURNED: AtomicUsize = AtomicUsize::new(0);
    let turned_away: Arc<dyn Fn() + Send + Sync> = Arc::new(|| {
        TURNED.fetch_add(1, Ordering::SeqCst);
    });
    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    with(Port { turned_away: Some(turned_away), ..Port::new(listener, plain()) }, |address| {
        assert_eq!(ask(address, "\u{1}\u{2}hello there"), "");
        assert!(ask(address, &get_once("/")).ends_with("ok"));
        assert_eq!(TURNED.load(Ordering::SeqCst), 1);
    })
    .await;
}
