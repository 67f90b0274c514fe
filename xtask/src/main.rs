//! `cargo xtask`: the commands for developers and CI. One file or folder per command.

mod bench;
mod image;
mod peers;
mod picture;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds the test peers, runs tests and benchmarks, writes the container image, and renders the demo's picture.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Peers(peers::Arguments),
    Test(test::Arguments),
    Bench(bench::Arguments),
    Image(image::Arguments),
    Picture(picture::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Peers(arguments) => peers::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::Picture(arguments) => picture::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
