//! XML parsing: a bounded, namespace-aware tree.
//!
//! In: the body of a request. Out: [`Element`]s with local names, `xsi:type` without its prefix, the `type` attribute
//! of references, and text. Everything else in a document (comments, other attributes) is dropped.
//!
//! Invariants: depth and number of elements are bounded, so a hostile document costs no more than its own size; only
//! XML's five entities and character references are expanded; a document type is rejected.

use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;

/// Deeper than any request of the vSphere API; a traversal spec nests two levels per hop.
const DEPTH_MAX: usize = 64;
const ELEMENTS_MAX: usize = 200_000;
const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum XmlError {
    #[error("malformed XML: {0}")]
    Malformed(String),
    #[error("XML nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("more than {ELEMENTS_MAX} XML elements")]
    TooLarge,
    #[error("a document type is not accepted")]
    DocumentType,
    #[error("the document has no root element")]
    Empty,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// The local name.
    pub name: String,
    /// `xsi:type`, without prefix.
    pub xsi_type: Option<String>,
    /// The plain attribute `type`, the type of a managed object reference.
    pub reference_type: Option<String>,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The first child with that name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first child with that name.
    #[must_use]
    pub fn child_text(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim())
    }
}

pub fn parse(document: &str) -> Result<Element, XmlError> {
    let mut reader = NsReader::from_str(document);
    let mut open: Vec<Element> = Vec::new();
    let mut root: Option<Element> = None;
    let mut elements = 0_usize;
    loop {
        match reader.read_event().map_err(malformed)? {
            Event::Start(start) => {
                elements += 1;
                if elements > ELEMENTS_MAX {
                    return Err(XmlError::TooLarge);
                }
                if open.len() == DEPTH_MAX {
                    return Err(XmlError::TooDeep);
                }
                open.push(begin(&start, &reader)?);
            }
            Event::Empty(start) => {
                elements += 1;
                if elements > ELEMENTS_MAX {
                    return Err(XmlError::TooLarge);
                }
                let element = begin(&start, &reader)?;
                close(element, &mut open, &mut root)?;
            }
            Event::End(_) => {
                let element = open.pop().ok_or_else(|| XmlError::Malformed("unexpected end tag".to_owned()))?;
                close(element, &mut open, &mut root)?;
            }
            Event::Text(text) => append(&mut open, &text.xml10_content())?,
            Event::CData(data) => append(&mut open, &data.xml10_content())?,
            Event::GeneralRef(reference) => {
                if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
                    append(&mut open, character.encode_utf8(&mut [0; 4]))?;
                } else {
                    let resolved = resolve_xml_entity(&reference.xml10_content())
                        .ok_or_else(|| XmlError::Malformed("unknown entity".to_owned()))?;
                    append(&mut open, resolved)?;
                }
            }
            Event::DocType(_) => return Err(XmlError::DocumentType),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => (),
            Event::Eof => break,
        }
    }
    if !open.is_empty() {
        return Err(XmlError::Malformed("the document ends inside an element".to_owned()));
    }
    root.ok_or(XmlError::Empty)
}

#[allow(clippy::needless_pass_by_value)] // The shape that `map_err` asks for.
fn malformed(error: impl std::fmt::Display) -> XmlError {
    XmlError::Malformed(error.to_string())
}

fn begin(start: &BytesStart<'_>, reader: &NsReader<&[u8]>) -> Result<Element, XmlError> {
    let mut element = Element { name: start.local_name().as_ref().to_owned(), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(malformed)?;
        let (namespace, local) = reader.resolver().resolve_attribute(attribute.key);
        if local.as_ref() != "type" {
            continue;
        }
        let value = attribute.normalized_value(quick_xml::XmlVersion::default()).map_err(malformed)?;
        match namespace {
            ResolveResult::Bound(Namespace(XSI)) => {
                let local = value.rsplit_once(':').map_or(&*value, |(_, local)| local);
                element.xsi_type = Some(local.to_owned());
            }
            ResolveResult::Unbound => element.reference_type = Some(value.into_owned()),
            _ => (),
        }
    }
    Ok(element)
}

fn close(element: Element, open: &mut [Element], root: &mut Option<Element>) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(parent) => parent.children.push(element),
        None if root.is_none() => *root = Some(element),
        None => return Err(XmlError::Malformed("more than one root element".to_owned())),
    }
    Ok(())
}

/// Text outside the root element may only be white space.
fn append(open: &mut [Element], text: &str) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => (),
        None => return Err(XmlError::Malformed("text outside the root element".to_owned())),
    }
    Ok(())
}

/// Appends `text` as character data; characters that XML 1.0 cannot represent become U+FFFD.
pub fn escape_into(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#xD;"),
            '\t' | '\n' | ' '..='\u{FFFD}' | '\u{10000}'.. => out.push(character),
            _ => out.push('\u{FFFD}'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_with_any_prefix() {
        let document = r#"<a xmlns:i="http://www.w3.org/2001/XMLSchema-instance" xmlns:x="urn:x">
            <x:b i:type="x:Thing" type="VirtualMachine">vm-1 &amp; &#65;<![CDATA[<]]></x:b><c type="Folder"/></a>"#;
        let root = parse(document).unwrap();
        let b = root.child("b").unwrap();
        assert_eq!(b.xsi_type.as_deref(), Some("Thing"));
        assert_eq!(b.reference_type.as_deref(), Some("VirtualMachine"));
        assert_eq!(b.text, "vm-1 & A<");
        assert_eq!(root.child("c").unwrap().reference_type.as_deref(), Some("Folder"));
    }

    #[test]
    fn invalid_documents_are_rejected() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        for document in [
            "",
            "   ",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "text",
            "<a>&unknown;</a>",
            "<a>&#0;</a>",
            "<a b=c/>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            &deep,
        ] {
            assert!(parse(document).is_err(), "{document:?} was accepted");
        }
    }

    #[test]
    fn escaped_text_round_trips() {
        let text = "a<b>&\"c\"\r\n\té\u{1F600}";
        let mut document = "<a>".to_owned();
        escape_into(&mut document, text);
        document.push_str("</a>");
        assert_eq!(parse(&document).unwrap().text, text);
        let mut control = String::new();
        escape_into(&mut control, "\u{0}\u{FFFF}");
        assert_eq!(control, "\u{FFFD}\u{FFFD}");
    }
}
