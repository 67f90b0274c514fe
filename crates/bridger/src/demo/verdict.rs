//! The verdict: both acts' figures, as a table for people and JSON for machines, and whether the cure worked.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

/// What was measured in one act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Replicas that must be apart shared a physical host, after the first mend; summed over services.
    pub colocated: Duration,
    /// No replica was Ready; summed over services.
    pub downtime: Duration,
    /// How long services were watched, summed over them.
    pub observed: Duration,
    /// VMs moved while running.
    pub migrations: u64,
    pub rules: u64,
}

impl Figures {
    pub fn availability_percent(&self) -> f64 {
        if self.observed.is_zero() {
            return 100.0;
        }
        100.0 * (1.0 - self.downtime.as_secs_f64() / self.observed.as_secs_f64())
    }

    fn json(&self) -> Value {
        json!({
            "colocated_s": self.colocated.as_secs(),
            "downtime_s": self.downtime.as_secs(),
            "migrations": self.migrations,
            "rules": self.rules,
        })
    }

    /// One row's worth of words for each figure, in the order of [`ROWS`].
    pub fn cells(&self) -> [String; ROWS.len()] {
        [
            format!("{} s", self.colocated.as_secs()),
            format!("{} s", self.downtime.as_secs()),
            format!("{:.2} %", self.availability_percent()),
            self.migrations.to_string(),
            self.rules.to_string(),
        ]
    }
}

pub const ROWS: [&str; 5] = ["replicas sharing a host", "services down", "availability", "VM migrations", "DRS rules"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub seed: u64,
    pub without: Figures,
    pub with: Figures,
}

impl Verdict {
    pub fn is_cured(&self) -> bool {
        self.with.colocated.is_zero() && self.with.downtime.is_zero() && self.with.rules > 0
    }

    pub fn json(&self) -> Value {
        json!({ "seed": self.seed, "without": self.without.json(), "with": self.with.json() })
    }

    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([format!("seed {}", self.seed), "without Bridger".to_owned(), "with Bridger".to_owned()]);
        for (row, (without, with)) in ROWS.iter().zip(self.without.cells().into_iter().zip(self.with.cells())) {
            table.add_row([(*row).to_owned(), without, with]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// One sentence.
    pub fn sentence(&self) -> &'static str {
        match (self.is_cured(), self.without.colocated.is_zero() && self.without.downtime.is_zero()) {
            (false, _) => "The cure did not work: with Bridger there was co-location, downtime, or no rule at all.",
            (true, true) => "With Bridger nothing went wrong; with this seed nothing did without it either.",
            (true, false) => "With Bridger no replicas shared a host once mended, and no service was down.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(colocated_s: u64, downtime_s: u64, rules: u64) -> Figures {
        Figures {
            colocated: Duration::from_secs(colocated_s),
            downtime: Duration::from_secs(downtime_s),
            observed: Duration::from_secs(1000),
            migrations: 7,
            rules,
        }
    }

    #[test]
    fn the_json_has_the_promised_shape() {
        let verdict = Verdict { seed: 1, without: figures(20, 10, 0), with: figures(0, 0, 3) };
        let expected = r#"{"seed":1,"with":{"colocated_s":0,"downtime_s":0,"migrations":7,"rules":3},"without":{"colocated_s":20,"downtime_s":10,"migrations":7,"rules":0}}"#;
        assert_eq!(verdict.json(), serde_json::from_str::<Value>(expected).unwrap());
        assert!(verdict.table().contains("99.00 %"), "{}", verdict.table());
    }

    #[test]
    fn the_cure_worked_only_if_nothing_was_wrong_with_it() {
        for (with, cured) in
            [(figures(0, 0, 3), true), (figures(1, 0, 3), false), (figures(0, 1, 3), false), (figures(0, 0, 0), false)]
        {
            assert_eq!(Verdict { seed: 1, without: figures(9, 9, 0), with }.is_cured(), cured);
        }
    }
}
