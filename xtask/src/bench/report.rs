//! What a benchmark found: rows of a measured value beside what it is compared with.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::workspace;

pub struct Report {
    name: &'static str,
    rows: Vec<Row>,
}

/// One comparison. `ratio` is value / reference; for all rows so far, smaller is better.
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    against: String,
    reference: f64,
    /// The ratio must not exceed this; `None` where the row is for information.
    ratio_max: Option<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.value / self.reference
    }

    fn met(&self) -> bool {
        self.ratio_max.is_none_or(|limit| self.ratio() <= limit)
    }
}

impl Report {
    pub fn new(name: &'static str) -> Report {
        Report { name, rows: Vec::new() }
    }

    /// A value that must stay at or below a stated limit.
    pub fn limit(&mut self, what: impl Into<String>, value: f64, unit: &'static str, limit: f64) {
        let against = "limit".to_owned();
        self.rows.push(Row { what: what.into(), value, unit, against, reference: limit, ratio_max: Some(1.0) });
    }

    /// A count of things that must not happen.
    pub fn none(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        let against = "none allowed".to_owned();
        self.rows.push(Row { what: what.into(), value, unit, against, reference: 1.0, ratio_max: Some(0.0) });
    }

    /// A value beside a peer's, for information.
    pub fn beside(&mut self, what: impl Into<String>, value: f64, unit: &'static str, peer: &str, reference: f64) {
        self.rows.push(Row { what: what.into(), value, unit, against: peer.to_owned(), reference, ratio_max: None });
    }

    /// Prints the table, writes the JSON, and fails when a limit was not met.
    pub fn publish(&self) -> Result<()> {
        println!("\n{:>8}  {:<44} {:>12}  {:<18} {:>12}", "ratio", "what", "measured", "against", "reference");
        for row in &self.rows {
            println!(
                "{:>8.3}  {:<44} {:>12}  {:<18} {:>12}{}",
                row.ratio(),
                row.what,
                format!("{:.2} {}", row.value, row.unit),
                row.against,
                format!("{:.2} {}", row.reference, row.unit),
                if row.met() { "" } else { "  NOT MET" },
            );
        }
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({ "ratio": row.ratio(), "what": row.what, "value": row.value, "unit": row.unit,
                    "against": row.against, "reference": row.reference, "met": row.met() })
            })
            .collect();
        let folder = workspace::target().join("bench");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let file = folder.join(format!("{}.json", self.name));
        fs::write(&file, format!("{:#}\n", json!({ "bench": self.name, "rows": rows })))
            .with_context(|| format!("writing {}", file.display()))?;
        println!("\nwritten to {}", file.display());
        let missed = self.rows.iter().filter(|row| !row.met()).count();
        if missed > 0 {
            bail!("{missed} limits were not met");
        }
        Ok(())
    }
}
