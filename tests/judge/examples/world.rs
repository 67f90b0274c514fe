//! Prints random worlds, to look at one or to replay it: as the judge's requests, or as a kubectl `List`.
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
    let usage = "usage: world request|list|config all|nominated|inter-pod-affinity SEED [COUNT]";
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (form, profile, seed, count) = match arguments[..] {
        [form, profile, seed] => (form, profile, seed, "1"),
        [form, profile, seed, count] => (form, profile, seed, count),
        _ => return Err(usage.to_owned()),
    };
    let profile = match profile {
        "all" => Profile::All,
        "nominated" => Profile::Nominated,
        "inter-pod-affinity" => Profile::InterPodAffinity,
        _ => return Err(usage.to_owned()),
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| usage.to_owned());
    let (seed, count) = (number(seed)?, number(count)?);
    let mut output = BufWriter::new(io::stdout());
    for seed in seed..seed.saturating_add(count) {
        let world = World::random(seed, profile);
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
