//! Prints random worlds for inspection or replay: as requests for the judge, or as a kubectl `List`.
//!
//! `cargo run -p judge --example world -- request all 0 500 | scheduler-judge`
//! `cargo run -p judge --example world -- list inter-pod-affinity 42`

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use judge::{Profile, World};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match print(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(2)
        }
    }
}

fn print(arguments: &[String]) -> Result<(), String> {
    let usage = "usage: world request|list|config all|nominated|inter-pod-affinity|preemption|volumes NUMBER [COUNT]";
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (form, profile, first, count) = match arguments[..] {
        [form, profile, first] => (form, profile, first, "1"),
        [form, profile, first, count] => (form, profile, first, count),
        _ => return Err(usage.to_owned()),
    };
    let profile = Profile::ALL.into_iter().find(|it| it.name() == profile).ok_or(usage)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| usage.to_owned());
    let (first, count) = (number(first)?, number(count)?);
    let mut output = BufWriter::new(io::stdout());
    for number in first..first.saturating_add(count) {
        let world = World::random(number, profile);
        let line = match form {
            "request" => serde_json::to_string(&world).map_err(|error| error.to_string())?,
            "list" => format!("{:#}", world.to_list_json()),
            "config" => world.config.map_or_else(String::new, |config| format!("{config:#}")),
            _ => return Err(usage.to_owned()),
        };
        writeln!(output, "{line}").map_err(|error| error.to_string())?;
    }
    output.flush().map_err(|error| error.to_string())
}
