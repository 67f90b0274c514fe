//! Filters a test binary's output: everything is shown except the names that libtest lists a second time.
//!
//! Tests print their measurements, for example in how many worlds a plugin rejected a node. libtest hides the output of
//! passed tests without `--show-output`. With it, libtest also lists the names of all passed tests again at the end.

/// Makes libtest print the output of passed tests.
pub const SHOW_OUTPUT: &str = "--show-output";

/// Filters the lines of one binary's output.
#[derive(Debug, Default)]
pub struct Shown {
    after_heading: bool,
}

impl Shown {
    /// Whether to print the line.
    pub fn takes(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.after_heading = true;
            return false;
        }
        // Between the heading and the first output, and in the list of names, lines are empty or indented.
        self.after_heading &= line.is_empty() || line.starts_with("    ");
        !self.after_heading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(output: &str) -> String {
        let mut shown = Shown::default();
        output.lines().filter(|line| shown.takes(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn test_output_is_shown_and_names_only_once() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- a stdout ----\n400 worlds\n    indented\n\n\n\
            successes:\n    a\n    b\n\ntest result: ok. 2 passed; 0 failed;\n";
        assert_eq!(
            shown(output),
            "running 2 tests\ntest a ... ok\ntest b ... ok\n\n---- a stdout ----\n400 worlds\n    indented\n\n\n\
            test result: ok. 2 passed; 0 failed;"
        );
    }

    #[test]
    fn failures_are_shown_with_their_names() {
        let output = "test a ... FAILED\n\nsuccesses:\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout ----\nwhy\n\n\
            failures:\n    a\n\ntest result: FAILED. 1 passed; 1 failed;";
        let expected = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy\n\nfailures:\n    a\n\n\
            test result: FAILED. 1 passed; 1 failed;";
        assert_eq!(shown(output), expected);
    }
}
