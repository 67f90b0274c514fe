//! SOAP 1.1: parses requests, and writes answers and faults around values.
//!
//! In: the text of a request. Out: a [`Call`], or the text of an answer. A fault has HTTP status 500, as the protocol
//! requires.

use std::fmt::Write;

use super::value::{Reference, Value};
use super::xml::{self, Element, XmlError};
use crate::vcenter::vim_fault::VimFault;

/// A method called on an object.
#[derive(Debug)]
pub struct Call {
    /// `WaitForUpdatesEx`.
    pub method: String,
    /// The method's element: `_this` and the arguments.
    pub arguments: Element,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SoapError {
    #[error(transparent)]
    Xml(#[from] XmlError),
    #[error("not a SOAP envelope with a body")]
    NoBody,
    #[error("the SOAP body contains no call")]
    NoCall,
}

pub fn read(document: &str) -> Result<Call, SoapError> {
    let mut envelope = xml::parse(document)?;
    if envelope.name != "Envelope" {
        return Err(SoapError::NoBody);
    }
    let body = envelope.children.iter_mut().find(|child| child.name == "Body").ok_or(SoapError::NoBody)?;
    if body.children.is_empty() {
        return Err(SoapError::NoCall);
    }
    let arguments = body.children.swap_remove(0);
    Ok(Call { method: arguments.name.clone(), arguments })
}

/// The answer of a method.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Nothing,
    One(Value),
    /// An array: one `returnval` per item.
    Many(Vec<Value>),
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
    xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
    xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
    xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
    xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n";
const TAIL: &str = "\n</soapenv:Body>\n</soapenv:Envelope>";

#[must_use]
pub fn write_reply(method: &str, reply: &Reply) -> String {
    let mut out = HEAD.to_owned();
    let _ = write!(out, "<{method}Response xmlns=\"urn:vim25\">");
    match reply {
        Reply::Nothing => (),
        Reply::One(value) => value.write_field(&mut out, "returnval"),
        Reply::Many(values) => values.iter().for_each(|value| value.write_field(&mut out, "returnval")),
    }
    let _ = write!(out, "</{method}Response>");
    out.push_str(TAIL);
    out
}

/// `on` is the object the method was called on.
#[must_use]
pub fn write_fault(fault: &VimFault, on: Option<&Reference>) -> String {
    let mut out = HEAD.to_owned();
    out.push_str("<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>");
    xml::escape_into(&mut out, &fault.to_string());
    out.push_str("</faultstring><detail>");
    let type_name = fault.type_name();
    let _ = write!(out, "<{type_name}Fault xmlns=\"urn:vim25\" xsi:type=\"{type_name}\">");
    for (name, value) in fault_fields(fault, on) {
        value.write_field(&mut out, name);
    }
    let _ = write!(out, "</{type_name}Fault></detail></soapenv:Fault>");
    out.push_str(TAIL);
    out
}

/// The fault for a request that cannot be parsed.
#[must_use]
pub fn write_unreadable(error: &SoapError) -> String {
    write_fault(&VimFault::InvalidRequest(error.to_string()), None)
}

/// A fault in the form of `Task.info.error` and `missingSet`.
#[must_use]
pub fn localized_fault(fault: &VimFault, on: Option<&Reference>) -> Value {
    let mut fields = fault_fields(fault, on);
    fields.retain(|(_, value)| *value != Value::Unset);
    Value::object(
        "LocalizedMethodFault",
        vec![
            ("fault", Value::object(fault.type_name(), fields)),
            ("localizedMessage", Value::string(fault.to_string())),
        ],
    )
}

fn fault_fields(fault: &VimFault, on: Option<&Reference>) -> Vec<(&'static str, Value)> {
    let on = || Value::or_unset(on.cloned(), Value::Ref);
    let power = |state: &str| Value::of("VirtualMachinePowerState", state);
    match fault {
        VimFault::NotAuthenticated => vec![("object", on()), ("privilegeId", Value::string("System.View"))],
        VimFault::NoPermission { object, privilege } => {
            vec![("object", Value::Ref((*object).into())), ("privilegeId", Value::string(privilege))]
        }
        VimFault::ManagedObjectNotFound(object) => vec![("obj", Value::Ref((*object).into()))],
        VimFault::UnknownObject { type_name, value } => {
            vec![("obj", Value::Foreign { type_name: type_name.clone(), value: value.clone() })]
        }
        VimFault::InvalidArgument { property } => vec![("invalidProperty", Value::string(property))],
        VimFault::InvalidProperty(name) | VimFault::InvalidName(name) => vec![("name", Value::string(name))],
        VimFault::DuplicateName { name, object } => {
            vec![("name", Value::string(name)), ("object", Value::Ref((*object).into()))]
        }
        VimFault::InvalidPowerState { requested, existing } => {
            vec![("requestedState", power(requested)), ("existingState", power(existing))]
        }
        VimFault::SystemError(reason) => vec![("reason", Value::string(reason))],
        VimFault::MethodNotFound(method) => vec![("receiver", on()), ("method", Value::string(method))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_parsed_with_any_prefix() {
        let call = read(
            r#"<x:Envelope xmlns:x="http://schemas.xmlsoap.org/soap/envelope/"><x:Header><a/></x:Header><x:Body>
            <v:Logout xmlns:v="urn:vim25"><v:_this type="SessionManager">SessionManager</v:_this></v:Logout>
            </x:Body></x:Envelope>"#,
        )
        .unwrap();
        assert_eq!(call.method, "Logout");
        assert_eq!(call.arguments.child_text("_this"), Some("SessionManager"));
        for (document, error) in [
            ("<a/>", SoapError::NoBody),
            ("<Envelope/>", SoapError::NoBody),
            ("<Envelope><Body/></Envelope>", SoapError::NoCall),
        ] {
            assert_eq!(read(document).unwrap_err(), error);
        }
    }

    #[test]
    fn faults_have_their_type_and_message() {
        let text = write_fault(&VimFault::InvalidProperty("a<b".to_owned()), None);
        let envelope = xml::parse(&text).unwrap();
        let fault = envelope.child("Body").and_then(|body| body.child("Fault")).unwrap();
        assert_eq!(fault.child_text("faultstring"), Some("The property 'a<b' does not exist."));
        let detail = fault.child("detail").and_then(|detail| detail.child("InvalidPropertyFault")).unwrap();
        assert_eq!(detail.xsi_type.as_deref(), Some("InvalidProperty"));
        assert_eq!(detail.child_text("name"), Some("a<b"));
    }
}
