//! However callers write what they send, and however many they are, the process that answers reviews stays small.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use divvy_service::http::{Port, bind};
use divvy_service::run::Tasks;
use divvy_service::tls::Certificate;
use divvy_webhook::certificate::Authority;
use divvy_webhook::routes::{Admission, Metrics, Namespaces, routes};
use divvy_webhook::settings::Settings;
use divvy_webhook::standing::Standings;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// What the process may have taken at most, callers and all.
const MOST_MIB: u64 = 200;
/// The largest body that the port takes.
const LARGEST: usize = 3 << 20;
/// Requests in all, and those among them with a body of the largest size.
const REQUESTS: usize = 2000;
const LARGE: usize = 48;
/// Callers at the same time.
const CALLERS: usize = 256;

fn admission() -> Admission {
    Admission {
        settings: watch::Sender::new(Arc::new(Settings::default())).subscribe(),
        namespaces: Namespaces::default(),
        standings: Standings::default(),
        metrics: Metrics::register(&mut Registry::default()),
    }
}

/// A review of a new pod that asks for a GPU, with `part` as often as fits beside it.
fn review(part: &str, size: usize) -> String {
    let head = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","kind":{"kind":"Pod"},
        "object":{"kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{"limits":{"divvy.dev/gpu-memory":"1Gi"}}}],"more":["#;
    let tail = "]}}}";
    let count = (size - head.len() - tail.len()) / (part.len() + 1);
    format!("{head}{}{tail}", vec![part; count.max(1)].join(","))
}

/// What costs most to hold for its size, in every form that JSON has.
fn hostile(size: usize) -> Vec<Vec<u8>> {
    let head_and_tail = 400;
    let long_name = format!(
        "{{\"name\":\"{}\",\"resources\":{{\"limits\":{{\"divvy.dev/gpu-memory\":\"?\"}}}}}}",
        "n".repeat(size / 4)
    );
    let parts = [
        r#"{"":0}"#,
        "[]",
        "0",
        r#""""#,
        r#"{"a":{"b":{"c":{"d":[{}]}}}}"#,
        &"[".repeat(100_000.min(size / 2)),
        &long_name,
    ];
    let text = format!("\"{}\"", "x".repeat(size - 2 * head_and_tail));
    let mut bodies: Vec<Vec<u8>> = parts.iter().map(|part| review(part, size).into_bytes()).collect();
    bodies.push(review(&text, size).into_bytes());
    // The review itself, in place of the object, is written at length.
    bodies.push(format!("[{}]", vec![r#"{"":0}"#; size / 7 - 1].join(",")).into_bytes());
    bodies.push(
        format!(
            r#"{{"request":{{"uid":"u","kind":{{"kind":"Pod"}},"oldObject":[{}]}}}}"#,
            vec![r#"{"":0}"#; size / 7 - 20].join(",")
        )
        .into_bytes(),
    );
    // A compressed body is not JSON.
    bodies.push([&[0x1f, 0x8b, 8, 0][..], &vec![0; size / 2]].concat());
    bodies
}

/// The most memory that this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Sends a body in one piece or in chunks, and returns the status of the answer. Whoever waits too long for a place is cut off.
async fn send(tls: &TlsConnector, address: SocketAddr, body: &[u8], chunked: bool) -> io::Result<StatusCode> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = tls.connect(ServerName::try_from("here").unwrap(), stream).await?;
    let length =
        if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {}", body.len()) };
    let head = format!("POST /mutate HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    if chunked {
        for piece in body.chunks(16 << 10) {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
            stream.write_all(piece).await?;
            stream.write_all(b"\r\n").await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    } else {
        stream.write_all(body).await?;
    }
    let mut said = Vec::new();
    // A peer that closes without TLS's farewell has answered all the same.
    let _ = stream.read_to_end(&mut said).await;
    let status = said.get(9..12).ok_or(io::ErrorKind::ConnectionReset)?;
    StatusCode::from_bytes(status).map_err(io::Error::other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_reviews_of_every_hostile_form_take_little_memory() {
    let authority = Authority::make(Timestamp::now(), None).unwrap();
    let leaf = authority.leaf(&["here".to_owned()], Timestamp::now()).unwrap();
    let certificate = Certificate::from_pem(leaf.chain.as_bytes(), leaf.key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authority.bundle().as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let client = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let client =
        client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(client));

    let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = Tasks::new();
    let port = Port { certificate: Some(certificate), ..Port::new(listener, routes(admission())) };
    tasks.add("http", port.serve(tasks.stop()));
    let flood = async {
        let (small, large) = (Arc::new(hostile(60_000)), Arc::new(hostile(LARGEST)));
        let callers = Arc::new(Semaphore::new(CALLERS));
        let mut sent = JoinSet::new();
        for n in 0..REQUESTS {
            let (tls, small, large, callers) = (tls.clone(), small.clone(), large.clone(), callers.clone());
            sent.spawn(async move {
                let _place = callers.acquire_owned().await.unwrap();
                let bodies = if n < LARGE { large } else { small };
                send(&tls, address, &bodies[n % bodies.len()], n % 3 == 0).await
            });
        }
        let answers: Vec<StatusCode> = sent.join_all().await.into_iter().flatten().collect();
        assert!(answers.iter().all(|status| [StatusCode::OK, StatusCode::BAD_REQUEST].contains(status)));
        assert!(answers.contains(&StatusCode::OK) && answers.contains(&StatusCode::BAD_REQUEST));
        assert!(answers.len() > REQUESTS / 2, "{} of {REQUESTS} were answered", answers.len());
        "the flood is over"
    };
    tasks.run_until(flood).await.unwrap();
    let peak = peak_mib();
    assert!(peak < MOST_MIB, "the process took {peak} MiB");
}
