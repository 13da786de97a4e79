//! The CSV files by which a program is judged from outside. A mistake names its line and field, and how to mend it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::rows::{NodeRow, PodRow, Request};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1; the header is line 1.
    pub line: usize,
    /// The field; empty where the line as a whole is wrong.
    pub field: String,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field[..] {
            "" => write!(f, "line {}: {}", self.line, self.text),
            field => write!(f, "line {}, field {field}: {}", self.line, self.text),
        }
    }
}

impl std::error::Error for Mistake {}

/// A header and its rows.
struct Table<'a> {
    columns: HashMap<Cow<'a, str>, usize>,
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    line: usize,
    fields: Vec<Cow<'a, str>>,
}

impl<'a> Table<'a> {
    fn read(text: &'a str, needed: &[&str]) -> Result<Table<'a>, Mistake> {
        let whole = |line, text: String| Mistake { line, field: String::new(), text };
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, l)| !l.trim().is_empty());
        let Some((at, header)) = lines.next() else {
            return Err(whole(1, format!("the file is empty; its first line must name {}", needed.join(","))));
        };
        let mut columns = HashMap::new();
        for (place, name) in fields(at, header)?.into_iter().enumerate() {
            if columns.contains_key(&name) {
                return Err(whole(at, format!("column `{name}` is named twice")));
            }
            columns.insert(name, place);
        }
        let missing: Vec<&str> = needed.iter().filter(|name| !columns.contains_key(**name)).copied().collect();
        if !missing.is_empty() {
            return Err(whole(
                at,
                format!("column {} is missing; there is `{}`", missing.join(", "), header.trim_end()),
            ));
        }
        let mut rows = Vec::new();
        for (line, text) in lines {
            let fields = fields(line, text)?;
            if fields.len() != columns.len() {
                let (have, want) = (fields.len(), columns.len());
                return Err(whole(line, format!("{have} fields where the header names {want}")));
            }
            rows.push(Row { line, fields });
        }
        Ok(Table { columns, rows })
    }

    fn text<'r>(&self, row: &'r Row<'a>, column: &str) -> &'r str {
        self.columns.get(column).and_then(|at| row.fields.get(*at)).map_or("", |field| field)
    }

    fn number<T: std::str::FromStr>(&self, row: &Row<'a>, column: &str) -> Result<T, Mistake> {
        let text = self.text(row, column);
        text.parse().map_err(|_| mistake(row, column, format!("`{text}` is not a whole number in range")))
    }
}

/// The fields of a line. One that begins with a quote goes on to the next that stands alone, commas and all; two quotes are one.
fn fields(line: usize, text: &str) -> Result<Vec<Cow<'_, str>>, Mistake> {
    let mut fields = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (field, after) = match text.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (field, after) = unquote(line, quoted)?;
                (Cow::Owned(field), after)
            }
            None => {
                let (field, after) = text.split_once(',').map_or((text, None), |(field, after)| (field, Some(after)));
                (Cow::Borrowed(field.trim()), after)
            }
        };
        fields.push(field);
        rest = after;
    }
    Ok(fields)
}

/// What stands between a quote that was read and the one that ends it, and what follows the comma behind that.
fn unquote(line: usize, mut text: &str) -> Result<(String, Option<&str>), Mistake> {
    let wrong = |text: &str| Err(Mistake { line, field: String::new(), text: text.to_owned() });
    let mut field = String::new();
    loop {
        let Some((part, after)) = text.split_once('"') else { return wrong("a quote is opened and not closed") };
        field += part;
        if let Some(more) = after.strip_prefix('"') {
            field.push('"');
            text = more;
            continue;
        }
        return match after.trim_start().split_once(',') {
            Some(("", next)) => Ok((field, Some(next))),
            None if after.trim().is_empty() => Ok((field, None)),
            _ => wrong("text follows a quote that was closed; a comma must"),
        };
    }
}

/// A field as it is written: in quotes where it would be read as something else.
fn quote(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

fn mistake(row: &Row<'_>, column: &str, text: String) -> Mistake {
    Mistake { line: row.line, field: column.to_owned(), text }
}

fn name(table: &Table<'_>, row: &Row<'_>, column: &str) -> Result<Arc<str>, Mistake> {
    match table.text(row, column) {
        "" => Err(mistake(row, column, "a name is missing".into())),
        name => Ok(name.into()),
    }
}

/// Reads `sn,cpu_milli,memory_mib,gpu,model`.
pub fn nodes(text: &str) -> Result<Vec<NodeRow>, Mistake> {
    let table = Table::read(text, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let mut seen = BTreeSet::new();
    let read = |row: &Row<'_>| {
        let node = NodeRow {
            name: name(&table, row, "sn")?,
            cpu: table.number(row, "cpu_milli")?,
            memory: table.number(row, "memory_mib")?,
            gpus: table.number(row, "gpu")?,
            model: table.text(row, "model").into(),
        };
        if !seen.insert(node.name.clone()) {
            return Err(mistake(row, "sn", format!("node `{}` occurs twice", node.name)));
        }
        if node.gpus > 64 {
            return Err(mistake(row, "gpu", format!("{} GPUs in one node; at most 64", node.gpus)));
        }
        if node.gpus > 0 && node.model.is_empty() {
            return Err(mistake(row, "model", "GPUs without a model".into()));
        }
        Ok(node)
    };
    table.rows.iter().map(read).collect()
}

/// Reads `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec][,qos][,event]`. Pods leave only after they came.
pub fn pods(text: &str) -> Result<Vec<PodRow>, Mistake> {
    let table = Table::read(text, &["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    let mut here: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut read = |row: &Row<'_>| {
        let name = name(&table, row, "name")?;
        let leaves = match table.text(row, "event") {
            "" | "add" => false,
            "del" => true,
            other => return Err(mistake(row, "event", format!("`{other}` is neither add nor del"))),
        };
        if leaves && !here.remove(&name) {
            return Err(mistake(row, "event", format!("pod `{name}` leaves and is not there")));
        }
        if !leaves && !here.insert(name.clone()) {
            return Err(mistake(row, "name", format!("pod `{name}` comes and is there already")));
        }
        if leaves {
            // What it asked for was said when it came.
            return Ok(PodRow { name, request: Request::default(), leaves });
        }
        let models = table.text(row, "gpu_spec").split('|').map(str::trim).filter(|m| !m.is_empty());
        let mut request = Request {
            cpu: table.number(row, "cpu_milli")?,
            memory: table.number(row, "memory_mib")?,
            gpus: table.number(row, "num_gpu")?,
            milli: table.number(row, "gpu_milli")?,
            models: models.map(Into::into).collect(),
        };
        match (request.gpus, request.milli) {
            (0, _) => request.milli = 0,
            (1, 1..=1000) | (_, 1000) => {}
            (1, milli) => {
                return Err(mistake(
                    row,
                    "gpu_milli",
                    format!("{milli} of one GPU; 1 to 1000 thousandths are to be had"),
                ));
            }
            (gpus, milli) => {
                let text = format!("{milli} of each of {gpus} GPUs; several GPUs are whole ones, 1000 each");
                return Err(mistake(row, "gpu_milli", text));
            }
        }
        Ok(PodRow { name, request, leaves })
    };
    table.rows.iter().map(&mut read).collect()
}

/// Writes `pod,node,gpus` for the pods that came, in their order.
pub fn placements(pods: &[PodRow], placed: &[Option<(Arc<str>, Vec<u32>)>]) -> String {
    let mut text = String::from("pod,node,gpus\n");
    for (pod, place) in pods.iter().filter(|pod| !pod.leaves).zip(placed) {
        let (node, gpus) = place.as_ref().map_or(("", &[][..]), |(node, gpus)| (node, gpus));
        let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
        text += &format!("{},{},{}\n", quote(&pod.name), quote(node), gpus.join("|"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        pods(text).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_name_line_and_field() {
        let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,event\n";
        let with = |rows: &str| format!("{header}{rows}");
        assert_eq!(
            said(""),
            "line 1: the file is empty; its first line must name name,cpu_milli,memory_mib,num_gpu,gpu_milli"
        );
        assert_eq!(
            said("name,cpu_milli\n"),
            "line 1: column memory_mib, num_gpu, gpu_milli is missing; there is `name,cpu_milli`"
        );
        assert_eq!(said(&with("a,1,1\n")), "line 2: 3 fields where the header names 8");
        assert_eq!(
            said(&with("a,1,1,1,1000,,,\nb,x,1,0,0,,,\n")),
            "line 3, field cpu_milli: `x` is not a whole number in range"
        );
        assert_eq!(said(&with("a,-1,1,0,0,,,\n")), "line 2, field cpu_milli: `-1` is not a whole number in range");
        assert_eq!(
            said(&with("a,1,1,1,1001,,,\n")),
            "line 2, field gpu_milli: 1001 of one GPU; 1 to 1000 thousandths are to be had"
        );
        assert_eq!(
            said(&with("a,1,1,2,500,,,\n")),
            "line 2, field gpu_milli: 500 of each of 2 GPUs; several GPUs are whole ones, 1000 each"
        );
        assert_eq!(said(&with("a,1,1,0,0,,,gone\n")), "line 2, field event: `gone` is neither add nor del");
        assert_eq!(said(&with("a,1,1,0,0,,,del\n")), "line 2, field event: pod `a` leaves and is not there");
        assert_eq!(
            said(&with("a,1,1,0,0,,,\na,1,1,0,0,,,\n")),
            "line 3, field name: pod `a` comes and is there already"
        );
        assert_eq!(
            nodes("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,2,\n").unwrap_err().to_string(),
            "line 2, field model: GPUs without a model"
        );
    }

    #[test]
    fn fields_in_quotes_are_read_and_written_as_they_mean() {
        let text = "\u{feff}\n\"name\",cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\r\n\"a,\"\"b\"\"\",\"1\" ,2,1,500,\"T4|P100\"\r\n";
        let pods = pods(text).unwrap();
        assert_eq!((&*pods[0].name, pods[0].request.cpu, pods[0].request.models.len()), ("a,\"b\"", 1, 2));
        let placed = [Some((Arc::from("n"), vec![0, 3]))];
        assert_eq!(placements(&pods, &placed), "pod,node,gpus\n\"a,\"\"b\"\"\",n,0|3\n");
        let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n";
        assert_eq!(said(&format!("{header}\"a,1,1,0,0\n")), "line 2: a quote is opened and not closed");
        assert_eq!(
            said(&format!("{header}\"a\"b,1,1,0,0\n")),
            "line 2: text follows a quote that was closed; a comma must"
        );
    }

    #[test]
    fn a_pod_that_leaves_need_not_say_again_what_it_asked_for() {
        let header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,event\n";
        let pods = pods(&format!("{header}a,1,2,1,500,add\na,,,,,del\na,1,2,1,600,add\n")).unwrap();
        assert_eq!(pods.iter().map(|pod| pod.leaves).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(pods[2].request.milli, 600);
    }

    #[test]
    fn lists_without_models_and_events_are_read() {
        let pods = pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\r\na,1,2,0,0\r\nb,1,2,4,1000\r\n").unwrap();
        assert_eq!((pods[0].request.gpu(), pods[1].request.gpu()), (0, 4000));
    }
}
