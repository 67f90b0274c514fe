//! Describes errors in one line without credentials.
//!
//! kube's own error texts are not used: they contain whole status objects, the output of credential plugins, and parts
//! of responses that cannot be decoded.

use std::error::Error;

use engine::ports::PortError;

/// Longer messages (a proxy's HTML page) are truncated.
const CHARS_MAX: usize = 300;

/// One line for people.
pub(crate) fn describe(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => return describe_status(status),
        kube::Error::SerdeError(error) => {
            format!("the answer can't be read (line {}, column {})", error.line(), error.column())
        }
        kube::Error::FromUtf8(_) => "the answer is not UTF-8".to_owned(),
        kube::Error::Auth(_) => "the credentials could not be obtained (token file or credential plugin)".to_owned(),
        other => innermost(other).to_string(),
    };
    one_line(&text)
}

pub(crate) fn describe_status(status: &kube::core::Status) -> String {
    let text = match (status.code, status.message.as_str(), status.reason.as_str()) {
        (0, message, _) => message.to_owned(),
        (code, "", reason) => format!("HTTP {code} {reason}"),
        (code, message, _) => format!("HTTP {code}: {message}"),
    };
    one_line(&text)
}

/// Like [`describe`], for errors of the watcher, which wrap those of the client.
pub(crate) fn describe_watch(error: &kube::runtime::watcher::Error) -> String {
    use kube::runtime::watcher::Error as Watch;
    match error {
        Watch::InitialListFailed(error) => format!("listing: {}", describe(error)),
        Watch::WatchStartFailed(error) | Watch::WatchFailed(error) => format!("watching: {}", describe(error)),
        Watch::WatchError(status) => format!("watching: {}", describe_status(status)),
        Watch::NoResourceVersion => "the answer has no resourceVersion".to_owned(),
    }
}

/// Classifies an error by whether a retry may help, which is what the engine decides by.
pub(crate) fn port_error(object: &str, error: &kube::Error) -> PortError {
    let kube::Error::Api(status) = error else {
        return PortError::Transient(format!("{object}: {}", describe(error)));
    };
    match status.code {
        404 => PortError::NotFound(object.to_owned()),
        401 | 403 | 422 => PortError::Permanent(format!("{object}: {}", describe_status(status))),
        _ => PortError::Transient(format!("{object}: {}", describe_status(status))),
    }
}

/// Iterates over the chain of causes. An `io::Error` hides its inner error from `source`, so it is unwrapped
/// explicitly.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    /// No real chain is that long; a cyclic chain ends here.
    const DEPTH_MAX: usize = 32;
    std::iter::successors(Some(error), |&error| {
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        match carried {
            Some(carried) => Some(carried as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
    .take(DEPTH_MAX)
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

pub(crate) fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed())
    }

    #[test]
    fn the_status_code_determines_whether_a_retry_may_help() {
        let transient = |text: &str| PortError::Transient(format!("node n1: HTTP {text}: why"));
        let permanent = |text: &str| PortError::Permanent(format!("node n1: HTTP {text}: why"));
        let cases = [
            (404, PortError::NotFound("node n1".to_owned())),
            (401, permanent("401")),
            (403, permanent("403")),
            (422, permanent("422")),
            (400, transient("400")),
            (409, transient("409")),
            (429, transient("429")),
            (500, transient("500")),
            (504, transient("504")),
        ];
        for (code, expected) in cases {
            assert_eq!(port_error("node n1", &api(code, "why")), expected);
        }
    }

    #[test]
    fn errors_are_one_line_and_do_not_quote_responses() {
        let page = format!("<html>\n{}\n</html>", "word ".repeat(200));
        let line = describe(&api(502, &page));
        assert!(line.starts_with("HTTP 502: <html> word word") && line.ends_with('…'), "{line}");
        assert!(line.chars().count() <= CHARS_MAX + 1 && !line.contains('\n'));

        let secret = serde_json::from_str::<u8>(r#""s3cret-token""#).expect_err("not a number");
        assert!(secret.to_string().contains("s3cret"), "the original error quotes it");
        assert!(!describe(&kube::Error::SerdeError(secret)).contains("s3cret"));
    }

    #[test]
    fn the_innermost_cause_is_found_within_io_errors() {
        let inner = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused by 10.0.0.1");
        let outer = kube::Error::Service(Box::new(std::io::Error::other(inner)));
        assert_eq!(describe(&outer), "connection refused by 10.0.0.1");
    }
}
