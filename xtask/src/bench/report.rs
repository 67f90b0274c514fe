//! The result of a benchmark: rows with a measured value and its reference.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::workspace;

pub struct Report {
    name: &'static str,
    rows: Vec<Row>,
}

/// One comparison. `ratio` is value / reference; the bounds show whether it should be large or small.
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    against: String,
    reference: f64,
    /// The ratio must not exceed this. A row without bounds is for information.
    ratio_max: Option<f64>,
    /// The ratio must not be below this.
    ratio_min: Option<f64>,
}

impl Row {
    /// Nothing beside nothing is the same.
    fn ratio(&self) -> f64 {
        if self.value == 0.0 && self.reference == 0.0 { 1.0 } else { self.value / self.reference }
    }

    fn met(&self) -> bool {
        let (ratio, max, min) = (self.ratio(), self.ratio_max, self.ratio_min);
        max.is_none_or(|limit| ratio <= limit) && min.is_none_or(|goal| ratio >= goal)
    }
}

impl Report {
    pub fn new(name: &'static str) -> Report {
        Report { name, rows: Vec::new() }
    }

    fn add(&mut self, what: String, value: f64, unit: &'static str, against: &str, reference: f64) -> &mut Row {
        let against = against.to_owned();
        self.rows.push(Row { what, value, unit, against, reference, ratio_max: None, ratio_min: None });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// A value that must not exceed a limit.
    pub fn limit(&mut self, what: impl Into<String>, value: f64, unit: &'static str, limit: f64) {
        self.add(what.into(), value, unit, "limit", limit).ratio_max = Some(1.0);
    }

    /// A count that must be zero.
    pub fn none(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.add(what.into(), value, unit, "none allowed", 1.0).ratio_max = Some(0.0);
    }

    /// A value and a peer's, for information.
    pub fn beside(&mut self, what: impl Into<String>, value: f64, unit: &'static str, peer: &str, reference: f64) {
        self.add(what.into(), value, unit, peer, reference);
    }

    /// A value that must be at least `ratio` times a peer's.
    pub fn at_least(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        peer: &str,
        reference: f64,
        ratio: f64,
    ) {
        self.add(what.into(), value, unit, peer, reference).ratio_min = Some(ratio);
    }

    /// A value that must not exceed `ratio` times another.
    pub fn at_most(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        other: &str,
        reference: f64,
        ratio: f64,
    ) {
        self.add(what.into(), value, unit, other, reference).ratio_max = Some(ratio);
    }

    /// The number of limits that were not met.
    pub fn missed(&self) -> usize {
        self.rows.iter().filter(|row| !row.met()).count()
    }

    /// Prints the table, writes the JSON, and fails if a limit was not met.
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
        let missed = self.missed();
        if missed > 0 {
            bail!("{missed} limits were not met");
        }
        Ok(())
    }
}
