//! What the suite reports, compared with what must pass.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// The result of one test.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Passed,
    /// It ran, and the suite reports another state than passed.
    Failed(String),
    Skipped(String),
    /// The suite has no such test.
    Missing,
    /// It ran, but no list has it.
    Unlisted,
}

/// One row for each test that must pass, and for each that is not in the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub verdict: Verdict,
    pub seconds: f64,
}

impl Report {
    /// Reads the report that Ginkgo writes as JSON.
    pub fn read(json: &str, expected: &[&str]) -> Result<Report> {
        let suites: Value = serde_json::from_str(json).context("reading the report of the suite")?;
        let suites = suites.as_array().context("the report of the suite is no list")?;
        let mut ran = BTreeMap::new();
        for spec in suites.iter().flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten()) {
            if spec["LeafNodeType"] == "It" && is_selected(spec) {
                ran.insert(name(spec), spec);
            }
        }
        let mut rows: Vec<Row> = expected.iter().map(|name| row(name, ran.remove(*name))).collect();
        rows.extend(ran.into_iter().map(|(name, spec)| Row { verdict: Verdict::Unlisted, ..row(&name, Some(spec)) }));
        Ok(Report { rows })
    }

    pub fn count(&self, of: impl Fn(&Verdict) -> bool) -> usize {
        self.rows.iter().filter(|row| of(&row.verdict)).count()
    }

    /// The rows as text, and a last line as libtest prints it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = String::new();
        for Row { name, verdict, seconds } in &self.rows {
            let (outcome, reason) = match verdict {
                Verdict::Passed => ("passed", ""),
                Verdict::Failed(message) => ("FAILED", message.as_str()),
                Verdict::Skipped(message) => ("SKIPPED", message.as_str()),
                Verdict::Missing => ("MISSING", "the suite has no such test"),
                Verdict::Unlisted => ("UNLISTED", "no list has this test"),
            };
            table.push_str(&format!("{outcome:<8} {seconds:>6.1} s  {name}\n"));
            for line in reason.lines().take(REASON_LINES) {
                table.push_str(&format!("{:20}{line}\n", ""));
            }
        }
        let passed = self.count(|it| *it == Verdict::Passed);
        let skipped = self.count(|it| matches!(it, Verdict::Skipped(_)));
        let failed = self.rows.len() - passed - skipped;
        let word = if passed == self.rows.len() { "ok" } else { "FAILED" };
        table.push_str(&format!("\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored\n"));
        table
    }
}

const REASON_LINES: usize = 12;

fn row(name: &str, spec: Option<&Value>) -> Row {
    let seconds = spec.and_then(|spec| spec["RunTime"].as_f64()).unwrap_or_default() / 1e9;
    let verdict = spec.map_or(Verdict::Missing, |spec| {
        let message = spec["Failure"]["Message"].as_str().unwrap_or_default().to_owned();
        match spec["State"].as_str() {
            Some("passed") => Verdict::Passed,
            Some("skipped" | "pending") => Verdict::Skipped(message),
            state => Verdict::Failed(format!("{}: {message}", state.unwrap_or("no state"))),
        }
    });
    Row { name: name.to_owned(), verdict, seconds }
}

/// Whether it was selected: of the others Ginkgo says that they were skipped, without a message.
fn is_selected(spec: &Value) -> bool {
    spec["State"] != "skipped" || spec["Failure"]["Message"].as_str().is_some_and(|message| !message.is_empty())
}

fn name(spec: &Value) -> String {
    let texts = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().chain([&spec["LeafNodeText"]]);
    texts.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(name: &str, state: &str, message: &str) -> Value {
        json!({ "LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-x]"], "LeafNodeText": name, "State": state,
            "RunTime": 1_500_000_000_u64, "Failure": { "Message": message } })
    }

    #[test]
    fn only_what_ran_and_passed_counts_as_passed() {
        let json = json!([{ "SpecReports": [
            { "LeafNodeType": "SynchronizedBeforeSuite", "State": "passed" },
            spec("good", "passed", ""), spec("bad", "timedout", "too slow"), spec("gives up", "skipped", "needs 3 nodes"),
            spec("not selected", "skipped", ""), spec("new", "passed", ""),
        ] }]);
        let expected = ["[sig-x] good", "[sig-x] bad", "[sig-x] gives up", "[sig-x] not selected", "[sig-x] gone"];
        let report = Report::read(&json.to_string(), &expected).unwrap();
        let verdicts: Vec<&Verdict> = report.rows.iter().map(|row| &row.verdict).collect();
        assert_eq!(
            verdicts,
            [
                &Verdict::Passed,
                &Verdict::Failed("timedout: too slow".to_owned()),
                &Verdict::Skipped("needs 3 nodes".to_owned()),
                &Verdict::Missing,
                &Verdict::Missing,
                &Verdict::Unlisted,
            ]
        );
        assert!(report.table().ends_with("test result: FAILED. 1 passed; 4 failed; 1 ignored\n"), "{}", report.table());
        assert!(report.table().starts_with("passed      1.5 s  [sig-x] good\n"), "{}", report.table());
    }

    #[test]
    fn nothing_that_ran_is_nothing_that_passed() {
        let report = Report::read("[]", &["[sig-x] a"]).unwrap();
        assert_eq!(report.count(|verdict| *verdict == Verdict::Passed), 0);
        assert!(Report::read("{}", &[]).is_err());
    }
}
