//! What the library and the agent say to each other over `agent.sock`, a `SOCK_SEQPACKET` socket: one message is one packet.
//!
//! The agent knows who speaks from the socket's credentials, which the kernel fills in; nothing in a message is believed. A connection
//! is short: a process that says who it is waits for the welcome and hangs up, so that no descriptor of ours lies among the program's.
//! Its death is for the agent to see, by the pidfd of the peer. A forked child connects anew: the credentials are those of the
//! process that connected.

use alloc::vec::Vec;

/// Begins every frame: `DVY1`, little endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"DVY1");
/// Longest frame there is.
pub const MAX_FRAME: usize = HEAD + 16 + PER_FRAME * PROCESS;
/// Processes in one [`Message::Processes`].
pub const PER_FRAME: usize = 32;

const HEAD: usize = 12;
const PROCESS: usize = 40;
const HELLO: usize = 32;
const WELCOME: usize = 16;
const QUERY: usize = 8;
const EVENT: usize = 24;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Library: I am here, and this is my slot.
    Hello(Hello),
    /// Agent: you are known.
    Welcome(Welcome),
    /// Library: whom may I see on this device? From the `from`-th on.
    Query {
        /// The device's place in the container.
        device: u32,
        /// How many to skip.
        from: u32,
    },
    /// Agent: these, of `total`.
    Processes {
        /// How many there are in all.
        total: u32,
        /// At most [`PER_FRAME`] of them.
        listed: Vec<SeenProcess>,
    },
    /// Library: this happened.
    Event(Event),
}

/// Who a process says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Its slot in the ledger; `u32::MAX` if it got none.
    pub slot: u32,
    /// The pid it knows itself by.
    pub pid: u32,
    /// The generation of its slot.
    pub generation: u64,
    /// The number it drew.
    pub token: u64,
    /// The ledger layout it speaks.
    pub layout: u32,
}

/// The agent's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// 0 if accepted, else why not: 1 not a process of this container, 2 no such slot.
    pub refused: u32,
    /// The process's pid on the node.
    pub host_pid: u32,
    /// The configuration's generation.
    pub generation: u64,
}

/// A process of the same container on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenProcess {
    /// The pid in the container.
    pub pid: u32,
    /// Thousandths of the device's time over the last second.
    pub utilisation: u32,
    /// Bytes on the device, as the driver counts them.
    pub memory: u64,
    /// The command's name, zero-filled.
    pub name: [u8; 16],
    /// When it began to use the device, on the monotonic clock.
    pub since_ns: u64,
}

/// Something the agent should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// On which device; `u32::MAX` if on none.
    pub device: u32,
    /// A number that belongs to the kind (bytes asked for, the driver's error code).
    pub value: u64,
    /// Another.
    pub more: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// An allocation was refused at the limit: bytes asked for, bytes in use.
    Refused = 1,
    /// The card refuses to register a read-only gate page.
    GateNotReadOnly = 2,
    /// Streams cannot wait here; the CPU gate holds launches instead.
    CpuGate = 3,
    /// The program tried to write gate or completion words through the driver.
    Tampering = 4,
    /// All stream slots are taken.
    StreamsFull = 5,
    /// All process slots are taken.
    ProcessesFull = 6,
    /// A function the table does not know was asked for.
    UnknownSymbol = 7,
}

impl EventKind {
    fn from_raw(raw: u32) -> Option<EventKind> {
        use EventKind::*;
        [Refused, GateNotReadOnly, CpuGate, Tampering, StreamsFull, ProcessesFull, UnknownSymbol]
            .into_iter()
            .find(|k| *k as u32 == raw)
    }
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// Does not begin with [`MAGIC`].
    NotOurs,
    /// Its length does not fit its kind.
    Length,
    /// A kind this version does not know. To be ignored.
    Unknown,
}

impl core::fmt::Display for FrameFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            FrameFault::NotOurs => "not a frame of Divvy's",
            FrameFault::Length => "a frame whose length does not fit its kind",
            FrameFault::Unknown => "a frame of an unknown kind",
        })
    }
}

impl core::error::Error for FrameFault {}

/// Writes into a fixed buffer; a frame always fits.
struct Pen<'a> {
    out: &'a mut [u8; MAX_FRAME],
    at: usize,
}

impl Pen<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn u32(&mut self, n: u32) -> &mut Self {
        self.bytes(&n.to_le_bytes())
    }

    fn u64(&mut self, n: u64) -> &mut Self {
        self.bytes(&n.to_le_bytes())
    }
}

/// Reads from a body whose length was checked; past its end there are zeroes.
struct Eye<'a>(&'a [u8]);

impl Eye<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        if let Some((head, rest)) = self.0.split_at_checked(N) {
            out.copy_from_slice(head);
            self.0 = rest;
        }
        out
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl Message {
    fn kind(&self) -> u32 {
        match self {
            Message::Hello(_) => 1,
            Message::Welcome(_) => 2,
            Message::Query { .. } => 3,
            Message::Processes { .. } => 4,
            Message::Event(_) => 5,
        }
    }

    /// Writes the frame into `out`; how many bytes it takes. A list longer than [`PER_FRAME`] is cut.
    pub fn encode(&self, out: &mut [u8; MAX_FRAME]) -> usize {
        let mut pen = Pen { out, at: HEAD };
        match self {
            Message::Hello(h) => {
                pen.u32(h.slot).u32(h.pid).u64(h.generation).u64(h.token).u32(h.layout).u32(0);
            }
            Message::Welcome(w) => {
                pen.u32(w.refused).u32(w.host_pid).u64(w.generation);
            }
            Message::Query { device, from } => {
                pen.u32(*device).u32(*from);
            }
            Message::Processes { total, listed } => {
                let listed = &listed[..listed.len().min(PER_FRAME)];
                pen.u32(*total).u32(listed.len() as u32).u64(0);
                for p in listed {
                    pen.u32(p.pid).u32(p.utilisation).u64(p.memory).bytes(&p.name).u64(p.since_ns);
                }
            }
            Message::Event(e) => {
                pen.u32(e.kind as u32).u32(e.device).u64(e.value).u64(e.more);
            }
        }
        let length = pen.at;
        pen.at = 0;
        pen.u32(MAGIC).u32(self.kind()).u32((length - HEAD) as u32);
        length
    }

    /// Reads a frame. Any bytes are an answer or a [`FrameFault`].
    pub fn decode(frame: &[u8]) -> Result<Message, FrameFault> {
        let (head, body) = frame.split_at_checked(HEAD).ok_or(FrameFault::Length)?;
        let mut head = Eye(head);
        if head.u32() != MAGIC {
            return Err(FrameFault::NotOurs);
        }
        let kind = head.u32();
        if head.u32() as usize != body.len() {
            return Err(FrameFault::Length);
        }
        let exactly = |length: usize| if body.len() == length { Ok(Eye(body)) } else { Err(FrameFault::Length) };
        Ok(match kind {
            1 => {
                let mut eye = exactly(HELLO)?;
                Message::Hello(Hello {
                    slot: eye.u32(),
                    pid: eye.u32(),
                    generation: eye.u64(),
                    token: eye.u64(),
                    layout: eye.u32(),
                })
            }
            2 => {
                let mut eye = exactly(WELCOME)?;
                Message::Welcome(Welcome { refused: eye.u32(), host_pid: eye.u32(), generation: eye.u64() })
            }
            3 => {
                let mut eye = exactly(QUERY)?;
                Message::Query { device: eye.u32(), from: eye.u32() }
            }
            4 => {
                let mut eye = Eye(body);
                let (total, count, _) = (eye.u32(), eye.u32() as usize, eye.u64());
                if body.len() < 16 || count > PER_FRAME || body.len() != 16 + count * PROCESS {
                    return Err(FrameFault::Length);
                }
                let one = |_| SeenProcess {
                    pid: eye.u32(),
                    utilisation: eye.u32(),
                    memory: eye.u64(),
                    name: eye.take(),
                    since_ns: eye.u64(),
                };
                Message::Processes { total, listed: (0..count).map(one).collect() }
            }
            5 => {
                let mut eye = exactly(EVENT)?;
                Message::Event(Event {
                    kind: EventKind::from_raw(eye.u32()).ok_or(FrameFault::Unknown)?,
                    device: eye.u32(),
                    value: eye.u64(),
                    more: eye.u64(),
                })
            }
            _ => return Err(FrameFault::Unknown),
        })
    }
}

#[cfg(test)]
mod tests;
