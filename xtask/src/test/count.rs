//! Counts test results in the output of `cargo test`.

use super::Tally;

/// Adds up every `test result:` line.
pub fn cargo_test(output: &str) -> Tally {
    let mut tally = Tally { unit: "tests", ..Tally::default() };
    for line in output.lines().filter_map(|line| line.trim_start().strip_prefix("test result: ")) {
        let number_before = |word: &str| {
            line.split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(word))
                .find_map(|number| number.trim().parse::<usize>().ok())
                .unwrap_or(0)
        };
        tally.passed += number_before("passed");
        tally.failed += number_before("failed");
        tally.skipped += number_before("ignored");
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            noise\n\
            test result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s\n";
        assert_eq!(cargo_test(output), Tally { passed: 7, failed: 1, skipped: 2, unit: "tests" });
        assert_eq!(cargo_test("nothing here").passed, 0);
    }
}
