//! What agents tell on their metrics ports about containers, as others read it.

/// One line of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// What it is about.
    pub what: What,
    /// Of which pod.
    pub namespace: &'a str,
    /// Of which pod.
    pub pod: &'a str,
    /// On which card, where it says so.
    pub device: Option<&'a str>,
    /// How much.
    pub value: f64,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Parts of a card's time over the last second.
    Busy,
    /// Seconds with work and without a turn, since the grant.
    Throttled,
    /// Bytes in use.
    Memory,
}

/// The lines of an answer that are about what containers use; others are passed over.
pub fn told(text: &str) -> impl Iterator<Item = Told<'_>> {
    text.lines().filter_map(line)
}

fn line(line: &str) -> Option<Told<'_>> {
    let (name, rest) = line.split_once('{')?;
    let what = match name {
        "divvy_container_busy_ratio" => What::Busy,
        "divvy_container_throttled_seconds_total" => What::Throttled,
        "divvy_container_memory_used_bytes" => What::Memory,
        _ => return None,
    };
    let (labels, value) = rest.rsplit_once("} ")?;
    // A time may follow the value.
    let value = value.split(' ').next()?.parse().ok()?;
    let label = |key: &str| -> Option<&str> {
        labels.split("\",").find_map(|part| part.trim_end_matches('"').strip_prefix(key)?.strip_prefix("=\""))
    };
    Some(Told { what, namespace: label("namespace")?, pod: label("pod")?, device: label("device"), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_containers_are_read_and_all_others_passed_over() {
        let text = "# HELP divvy_container_busy_ratio x\n\
                    divvy_container_busy_ratio{device=\"GPU-1\",container=\"a\",namespace=\"n\",pod=\"p\"} 0.25\n\
                    divvy_container_throttled_seconds_total{namespace=\"n\",pod=\"p\"} 12.5 1700000000\n\
                    divvy_container_memory_limit_bytes{namespace=\"n\",pod=\"p\"} 7\n\
                    divvy_container_busy_ratio{pod=\"p\"} 1\n\
                    divvy_container_busy_ratio{broken\nnonsense\n";
        let of = |what, device, value| Told { what, namespace: "n", pod: "p", device, value };
        let read: Vec<Told<'_>> = told(text).collect();
        assert_eq!(read, [of(What::Busy, Some("GPU-1"), 0.25), of(What::Throttled, None, 12.5)]);
    }
}
