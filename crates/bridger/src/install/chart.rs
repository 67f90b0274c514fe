//! Prints a template as a file of a Helm chart.
//!
//! Every inserted value is printed as JSON, which is YAML as well: so no value can end a string or change the structure.

use std::fmt::Write as _;

use serde_json::Value;

use super::template::{Condition, Entry, Item, Origin, Piece, Template, Yaml};

/// The file of one object.
pub fn file(template: &Template) -> String {
    let mut text = String::new();
    match &template.when {
        Some(condition) => {
            let _ = writeln!(text, "{{{{- if {} }}}}", expression(condition));
            block(&mut text, &template.object, 0);
            text.push_str("{{- end }}\n");
        }
        None => block(&mut text, &template.object, 0),
    }
    text
}

/// A document without open values, in the same style.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    print_value(&mut text, value, 0);
    text
}

/// Prints a node on lines of its own.
fn block(text: &mut String, node: &Yaml, indent: usize) {
    match node {
        Yaml::Map(entries) => entries.iter().for_each(|entry| print_entry(text, entry, indent)),
        Yaml::List(items) => items.iter().for_each(|item| print_item(text, item, indent)),
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", scalar(other));
        }
    }
}

fn print_entry(text: &mut String, entry: &Entry, indent: usize) {
    match entry {
        Entry::Key(key, node) => {
            let _ = write!(text, "{:indent$}{}:", "", key_text(key));
            after_key(text, node, indent + 2);
        }
        Entry::When(condition, entries) => {
            let _ = writeln!(text, "{:indent$}{{{{- if {} }}}}", "", expression(condition));
            entries.iter().for_each(|entry| print_entry(text, entry, indent));
            let _ = writeln!(text, "{:indent$}{{{{- end }}}}", "");
        }
        Entry::Spread(source) => {
            let _ = writeln!(text, "{:indent$}{{{{- range $key, $value := {} }}}}", "", path(*source));
            let _ = writeln!(text, "{:indent$}{{{{ $key | toJson }}}}: {{{{ $value | toJson }}}}", "");
            let _ = writeln!(text, "{:indent$}{{{{- end }}}}", "");
        }
    }
}

fn print_item(text: &mut String, item: &Item, indent: usize) {
    match item {
        Item::One(Yaml::Literal(value)) if value.is_object() => print_listed(text, value, indent),
        Item::One(node @ (Yaml::Map(_) | Yaml::List(_))) => {
            let _ = writeln!(text, "{:indent$}-", "");
            block(text, node, indent + 2);
        }
        Item::One(node) => {
            let _ = write!(text, "{:indent$}-", "");
            after_key(text, node, indent + 2);
        }
        Item::When(condition, items) => {
            let _ = writeln!(text, "{:indent$}{{{{- if {} }}}}", "", expression(condition));
            items.iter().for_each(|item| print_item(text, item, indent));
            let _ = writeln!(text, "{:indent$}{{{{- end }}}}", "");
        }
        Item::Each(list, items) => {
            let _ = writeln!(text, "{:indent$}{{{{- range $each := $.Values.{list} }}}}", "");
            items.iter().for_each(|item| print_item(text, item, indent));
            let _ = writeln!(text, "{:indent$}{{{{- end }}}}", "");
        }
    }
}

/// What follows `key:` or `-`.
fn after_key(text: &mut String, node: &Yaml, indent: usize) {
    match node {
        Yaml::Map(entries) if entries.is_empty() => text.push_str(" {}\n"),
        Yaml::List(items) if items.is_empty() => text.push_str(" []\n"),
        Yaml::Map(_) | Yaml::List(_) => {
            text.push('\n');
            block(text, node, indent);
        }
        Yaml::File(content) => {
            text.push_str(" |\n");
            block(text, content, indent);
        }
        Yaml::Literal(value) => after_key_value(text, value, indent),
        other => {
            let _ = writeln!(text, " {}", scalar(other));
        }
    }
}

fn after_key_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            print_value(text, value, indent);
        }
        Value::Array(values) if !values.is_empty() => {
            text.push('\n');
            print_value(text, value, indent);
        }
        // Several lines are readable only as a block.
        Value::String(lines) if lines.ends_with('\n') && is_printable(lines) => {
            text.push_str(" |\n");
            for line in lines.lines() {
                let _ = writeln!(text, "{}", format!("{:indent$}{}", "", escaped(line)).trim_end());
            }
        }
        other => {
            let _ = writeln!(text, " {}", escaped(&other.to_string()));
        }
    }
}

fn is_printable(lines: &str) -> bool {
    !lines.starts_with([' ', '\n'])
        && !lines.ends_with("\n\n")
        && lines.chars().all(|it| it == '\n' || !it.is_control())
}

fn print_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let _ = write!(text, "{:indent$}{}:", "", key_text(key));
                after_key_value(text, value, indent + 2);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| print_listed(text, value, indent)),
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", escaped(&other.to_string()));
        }
    }
}

fn print_listed(text: &mut String, value: &Value, indent: usize) {
    let mut lines = String::new();
    match value {
        Value::Object(members) if !members.is_empty() => print_value(&mut lines, value, indent + 2),
        _ => {
            let _ = write!(lines, "{:indent$}  ", "");
            after_key_value(&mut lines, value, indent + 4);
            lines = lines.replacen("   ", "  ", 1);
        }
    }
    // The first line's indentation makes room for the dash.
    lines.replace_range(indent..=indent, "-");
    text.push_str(&lines);
}

fn scalar(node: &Yaml) -> String {
    match node {
        Yaml::Literal(value) => escaped(&value.to_string()),
        Yaml::Inserted(source) => format!("{{{{ {} | toJson }}}}", path(*source)),
        Yaml::Text(pieces) => match pieces.as_slice() {
            [Piece::Literal(literal)] => escaped(&Value::from(literal.as_str()).to_string()),
            [Piece::Inserted(source)] => format!("{{{{ {} | toString | toJson }}}}", path(*source)),
            pieces => printf(pieces),
        },
        Yaml::Map(_) => "{}".to_owned(),
        Yaml::List(_) => "[]".to_owned(),
        Yaml::File(content) => {
            let mut text = String::new();
            block(&mut text, content, 0);
            text
        }
    }
}

fn printf(pieces: &[Piece]) -> String {
    let (mut format, mut arguments) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => format.push_str(&literal.replace('%', "%%")),
            Piece::Inserted(source) => {
                format.push_str("%s");
                let _ = write!(arguments, " ({} | toString)", path(*source));
            }
        }
    }
    format!("{{{{ printf {}{arguments} | toJson }}}}", Value::from(format))
}

fn path(source: Origin) -> String {
    match source {
        Origin::Value(path) => format!("$.Values.{path}"),
        // Inside a loop the dot is the element; `$` is always the root.
        Origin::Field(name) => format!("$each.{name}"),
        Origin::Element => "$each".to_owned(),
        Origin::Digest => "($.Values | toJson | sha256sum)".to_owned(),
        Origin::Namespace => "$.Release.Namespace".to_owned(),
    }
}

fn expression(condition: &Condition) -> String {
    let all = |conditions: &[Condition]| conditions.iter().map(expression).collect::<Vec<_>>().join(" ");
    match condition {
        Condition::Is(source) => path(*source),
        Condition::Not(condition) => format!("(not {})", expression(condition)),
        Condition::Any(conditions) => format!("(or {})", all(conditions)),
        Condition::All(conditions) => format!("(and {})", all(conditions)),
        Condition::Above(source, least) => format!("(gt (int {}) {least})", path(*source)),
    }
}

/// Text of ours that Helm would take for an action.
fn escaped(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

fn key_text(key: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./".contains(it);
    if !key.is_empty() && key.chars().all(is_plain) && !key.starts_with(['-', '.']) {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}
