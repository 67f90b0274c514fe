//! The verdict: the figures of both acts, as a table or JSON, and whether Bridger solved the problem.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The measurements of one act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemoFigures {
    /// Time during which replicas with anti-affinity shared a physical host, outside the grace periods; summed over
    /// services.
    pub colocated: Duration,
    /// Time during which no replica was Ready; summed over services.
    pub downtime: Duration,
    /// Observed time, summed over services.
    pub observed: Duration,
    /// Migrations of running VMs.
    pub migrations: u64,
    pub rules: u64,
}

impl DemoFigures {
    pub fn availability_percent(&self) -> f64 {
        if self.observed.is_zero() {
            return 100.0;
        }
        100.0 * (1.0 - self.downtime.as_secs_f64() / self.observed.as_secs_f64())
    }

    fn to_wire(self) -> FiguresOnWire {
        FiguresOnWire {
            colocated_s: self.colocated.as_secs(),
            downtime_s: self.downtime.as_secs(),
            migrations: self.migrations,
            rules: self.rules,
        }
    }

    /// The figures as table cells, in the order of [`ROWS`].
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
    pub without: DemoFigures,
    pub with: DemoFigures,
}

#[derive(Serialize)]
struct VerdictOnWire {
    seed: u64,
    without: FiguresOnWire,
    with: FiguresOnWire,
}

#[derive(Serialize)]
struct FiguresOnWire {
    colocated_s: u64,
    downtime_s: u64,
    migrations: u64,
    rules: u64,
}

impl Verdict {
    pub fn is_solved(&self) -> bool {
        self.with.colocated.is_zero() && self.with.downtime.is_zero() && self.with.rules > 0
    }

    /// One line of JSON, with a fixed order of members.
    pub fn json(&self) -> serde_json::Result<String> {
        let (without, with) = (self.without.to_wire(), self.with.to_wire());
        serde_json::to_string(&VerdictOnWire { seed: self.seed, without, with })
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

    /// The result in one sentence.
    pub fn sentence(&self) -> &'static str {
        match (self.is_solved(), self.without.colocated.is_zero() && self.without.downtime.is_zero()) {
            (false, _) => "Not solved: with Bridger replicas shared a host, a service was down, or there was no rule.",
            (true, true) => "With Bridger nothing went wrong; with this seed nothing went wrong without it either.",
            (true, false) => "With Bridger no replicas shared a host outside grace periods, and no service was down.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(colocated_s: u64, downtime_s: u64, rules: u64) -> DemoFigures {
        DemoFigures {
            colocated: Duration::from_secs(colocated_s),
            downtime: Duration::from_secs(downtime_s),
            observed: Duration::from_secs(1000),
            migrations: 7,
            rules,
        }
    }

    #[test]
    fn the_json_has_the_documented_form() {
        let verdict = Verdict { seed: 1, without: figures(20, 10, 0), with: figures(0, 0, 3) };
        let expected = concat!(
            r#"{"seed":1,"without":{"colocated_s":20,"downtime_s":10,"migrations":7,"rules":0},"#,
            r#""with":{"colocated_s":0,"downtime_s":0,"migrations":7,"rules":3}}"#
        );
        assert_eq!(verdict.json().unwrap(), expected);
        assert!(verdict.table().contains("99.00 %"), "{}", verdict.table());
    }

    #[test]
    fn the_problem_is_solved_only_without_sharing_and_downtime_and_with_rules() {
        for (with, is_solved) in
            [(figures(0, 0, 3), true), (figures(1, 0, 3), false), (figures(0, 1, 3), false), (figures(0, 0, 0), false)]
        {
            assert_eq!(Verdict { seed: 1, without: figures(9, 9, 0), with }.is_solved(), is_solved);
        }
    }
}
