use super::*;

fn from(settings: &Settings, variables: &[(&str, &str)]) -> Result<VcenterConfig, VcenterConfigError> {
    let found = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    VcenterConfig::from_settings(settings, found)
}

const USER: (&str, &str) = ("GOVC_USERNAME", "me");
const PASSWORD: (&str, &str) = ("GOVC_PASSWORD", "s3cret");

fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn each_source_of_credentials_overrides_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let username_file = Some(write(&folder, "username", "filed\n"));
    let password_file = Some(write(&folder, "password", "two\nlines \r\n"));
    let files = Settings { username_file, password_file, ..Settings::default() };
    let in_url = ("GOVC_URL", "https://urled:in-url@vc");
    for (settings, variables, expected) in [
        (&files, &[in_url, USER, PASSWORD][..], ("filed", "two\nlines ")),
        (&Settings::default(), &[in_url, USER, PASSWORD], ("me", "s3cret")),
        (&Settings::default(), &[in_url, USER], ("me", "in-url")),
        (&Settings::default(), &[in_url, ("GOVC_USERNAME", "")], ("urled", "in-url")),
    ] {
        let credentials = from(settings, variables).unwrap().credentials.read().unwrap();
        assert_eq!((credentials.username.as_str(), credentials.password.as_str()), expected);
    }
}

#[test]
fn a_rotated_secret_takes_effect() {
    let folder = tempfile::tempdir().unwrap();
    let password_file = write(&folder, "password", "old");
    let settings = Settings { password_file: Some(password_file), ..Settings::default() };
    let config = from(&settings, &[("GOVC_URL", "vc"), USER]).unwrap();
    write(&folder, "password", "new");
    assert_eq!(config.credentials.read().unwrap().password, "new");
}

#[test]
fn the_url_of_the_settings_replaces_the_variable_and_its_credentials() {
    let settings = Settings { url: Some("https://other.example.org".to_owned()), ..Settings::default() };
    let variables = [("GOVC_URL", "https://urled:in-url@vc"), USER];
    let error = from(&settings, &variables).unwrap_err();
    assert!(matches!(&error, VcenterConfigError::NoPassword { host } if host == "other.example.org"), "{error}");
}

#[test]
fn missing_and_invalid_settings_are_reported_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let url = |url: &str| Settings { url: Some(url.to_owned()), ..Settings::default() };
    let password_file = |path: PathBuf| Settings { password_file: Some(path), ..Settings::default() };
    let none = Settings::default();
    let vc = ("GOVC_URL", "vc");
    let empty = write(&folder, "empty", "\n");
    let large = write(&folder, "large", &"x".repeat(70_000));
    for (settings, variables, expected) in [
        (&none, &[][..], "set GOVC_URL or --url"),
        (&none, &[vc], "set GOVC_USERNAME"),
        (&none, &[vc, USER], "set GOVC_PASSWORD"),
        (&none, &[("GOVC_URL", "ftp://me:s3cret@vc")], "does not begin with https://"),
        (&url("https://me:s3cret@vc"), &[], "holds a password"),
        (&none, &[vc, USER, PASSWORD, ("GOVC_INSECURE", "yes")], "GOVC_INSECURE=\"yes\""),
        (&password_file("/nonexistent/password".into()), &[vc, USER], "password could not be read from /nonexistent"),
        (&password_file(empty), &[vc, USER], "it is empty"),
        (&password_file(large), &[vc, USER], "larger than"),
        (&Settings { thumbprint: Some("12:34".to_owned()), ..Settings::default() }, &[vc, USER, PASSWORD], "SHA-256"),
    ] {
        let error = from(settings, variables).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("s3cret") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn no_debug_output_contains_the_password() {
    let config = from(&Settings::default(), &[("GOVC_URL", "https://me:s3cret@vc")]).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn trust_is_taken_from_the_first_source_that_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let ours = "ab".repeat(32);
    let known = write(
        &folder,
        "known_hosts",
        &format!(
            "# comment\nother:443 {}\nVC.example.org {}\nvc.example.org:443  {ours}\n",
            "11".repeat(32),
            "22".repeat(20)
        ),
    );
    let others = write(&folder, "others", "other:443 anything\n");
    let known = known.to_str().unwrap();
    let both = std::env::join_paths([folder.path().join("absent"), others.clone(), known.into()]).unwrap();
    let cas = std::env::join_paths(["a.pem", "b.pem"]).unwrap();
    let (both, cas) = (both.to_str().unwrap(), cas.to_str().unwrap());
    let thumbprint = Trust::Thumbprint(ours.parse().unwrap());
    let files = Trust::CaFiles(vec!["a.pem".into(), "b.pem".into()]);
    let none = Settings::default();
    let given = Settings { thumbprint: Some(ours), insecure: true, ..Settings::default() };
    let insecure = ("GOVC_INSECURE", "true");
    for (settings, variables, expected) in [
        (&none, &[][..], Trust::System),
        (&none, &[("GOVC_INSECURE", "0")], Trust::System),
        (&none, &[insecure, ("GOVC_TLS_CA_CERTS", cas)], Trust::Insecure),
        (&none, &[("GOVC_TLS_CA_CERTS", cas)], files.clone()),
        (&none, &[("GOVC_TLS_KNOWN_HOSTS", known), ("GOVC_TLS_CA_CERTS", cas)], thumbprint.clone()),
        (&none, &[("GOVC_TLS_KNOWN_HOSTS", both)], thumbprint.clone()),
        (&none, &[("GOVC_TLS_KNOWN_HOSTS", others.to_str().unwrap()), ("GOVC_TLS_CA_CERTS", cas)], files),
        (&given, &[insecure], thumbprint),
        (
            &Settings { ca_files: vec!["c.pem".into()], ..Settings::default() },
            &[insecure],
            Trust::CaFiles(vec!["c.pem".into()]),
        ),
    ] {
        let mut all = vec![("GOVC_URL", "vc.example.org"), USER, PASSWORD];
        all.extend(variables);
        assert_eq!(from(settings, &all).unwrap().trust, expected, "{variables:?}");
    }
}

#[test]
fn a_sha1_thumbprint_is_rejected_with_a_specific_error() {
    let folder = tempfile::tempdir().unwrap();
    let known = write(&folder, "known_hosts", &format!("[::1] {}\n", ["AB"; 20].join(":")));
    let variables = [("GOVC_URL", "[::1]"), USER, PASSWORD, ("GOVC_TLS_KNOWN_HOSTS", known.to_str().unwrap())];
    let error = from(&Settings::default(), &variables).unwrap_err().to_string();
    assert!(error.contains("SHA-1") && error.contains("SHA-256") && error.contains("[::1]:443"), "{error}");
}

#[test]
fn number_11_plain_http_is_refused_unless_it_is_called_insecure() {
    let plain = Settings { url: Some("http://vc".to_owned()), ..Settings::default() };
    let error = from(&plain, &[USER, PASSWORD]).unwrap_err();
    assert!(matches!(&error, VcenterConfigError::PlainHttp { host } if host == "vc"), "{error}");
    let insecure = Settings { insecure: true, ..plain };
    let config = from(&insecure, &[USER, PASSWORD]).unwrap();
    assert_eq!(config.insecurity(), Some("plain HTTP: the password is sent in clear"));
    let unverified = Settings { url: Some("https://vc".to_owned()), ..insecure };
    assert_eq!(from(&unverified, &[USER, PASSWORD]).unwrap().insecurity(), Some("its certificate is not verified"));
    let verified = Settings { insecure: false, ..unverified };
    assert_eq!(from(&verified, &[USER, PASSWORD]).unwrap().insecurity(), None);
}
