//! The old command line: `bridger -cluster C -url U -port P` means `bridger run --cluster C --url U --extender-port P`.
//!
//! In: the arguments of the process. Out: the arguments in today's form. Only these three flags had the old form, and only `run` has them:
//! every other command line stays as it is.

use std::ffi::{OsStr, OsString};

/// The old form of a flag, and the flag of `run`.
const FLAGS: [(&str, &str); 3] = [("-cluster", "--cluster"), ("-url", "--url"), ("-port", "--extender-port")];

/// The arguments, with the program's name first, in today's form.
pub fn rewritten(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some(first) = arguments.get(1) else { return arguments };
    if today(first).is_some() {
        arguments.insert(1, "run".into());
    } else if first != "run" {
        return arguments;
    }
    for argument in arguments.iter_mut().take_while(|argument| *argument != "--") {
        if let Some(today) = today(argument) {
            *argument = today;
        }
    }
    arguments
}

/// Today's form of `-flag` or `-flag=value`.
fn today(argument: &OsStr) -> Option<OsString> {
    let text = argument.to_str()?;
    FLAGS.iter().find_map(|(old, today)| {
        let rest = text.strip_prefix(old)?;
        (rest.is_empty() || rest.starts_with('=')).then(|| format!("{today}{rest}").into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let rewritten = rewritten(line.split(' ').map(OsString::from));
        rewritten.iter().map(|argument| argument.to_str().expect("text")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn number_7_the_old_command_line_means_run_with_the_extender() {
        let expected = "bridger run --cluster C --url U --extender-port P";
        assert_eq!(of("bridger -cluster C -url U -port P"), expected);
        assert_eq!(of("bridger run -cluster C -url U -port P"), expected);
        assert_eq!(of("bridger -port=1 -cluster=C --port 2"), "bridger run --extender-port=1 --cluster=C --port 2");
    }

    #[test]
    fn number_7_other_command_lines_stay_as_they_are() {
        for line in [
            "bridger",
            "bridger --cluster C",
            "bridger run --port 1 --cluster C",
            "bridger plan -cluster C",
            "bridger run -portal 1 -- -port",
            "bridger --help",
        ] {
            assert_eq!(of(line), line);
        }
    }
}
