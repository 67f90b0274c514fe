//! Ages in kubectl's format: `45s`, `3m12s`, `5h`, `2d3h`.

use serde_json::Value;

use crate::clock::SimTime;

/// The age of a timestamp; `<unknown>` if it is missing.
pub(super) fn since(timestamp: &Value, now: SimTime) -> String {
    let Some(moment) = timestamp.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let now_ms = i64::try_from(now.unix_ms).unwrap_or(i64::MAX);
    human(now_ms.saturating_sub(moment.as_millisecond()).div_euclid(1000))
}

fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |high: i64, high_unit: &str, low: i64, low_unit: &str| {
        if low == 0 { format!("{high}{high_unit}") } else { format!("{high}{high_unit}{low}{low_unit}") }
    };
    match seconds {
        // A clock skew of one second counts as zero.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        const DAY: i64 = 86_400;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (660, "11m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (2 * DAY + 3600, "2d1h"),
            (9 * DAY, "9d"),
            (800 * DAY, "2y70d"),
            (4000 * DAY, "10y"),
        ] {
            assert_eq!(human(seconds), text);
        }
        assert_eq!(since(&Value::Null, SimTime::VIRTUAL_START), "<unknown>");
        assert_eq!(since(&Value::String("2025-12-31T23:59:00Z".to_owned()), SimTime::VIRTUAL_START), "60s");
    }
}
