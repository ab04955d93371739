//! Authorities, and certificates that they have signed: made for one test, by openssl.

use std::process::Command;

/// A folder with `ca.pem` and `other.pem` (authorities), and for each of `server` (for 127.0.0.1),
/// `client` (both signed by `ca`) and `stranger` (by `other`) a `.pem` and a `.key`.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        std::fs::write(this.0.path().join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
        for authority in ["ca", "other"] {
            this.openssl(&format!(
                "req -x509 {NEW_KEY} {authority}.key -out {authority}.pem -subj /CN={authority}"
            ));
        }
        for (name, authority) in [("server", "ca"), ("client", "ca"), ("stranger", "other")] {
            this.openssl(&format!("req {NEW_KEY} {name}.key -out {name}.csr -subj /CN={name}"));
            this.openssl(&format!(
                "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial \
                 -days 2 -extfile names -out {name}.pem"
            ));
        }
        this.openssl("pkcs8 -topk8 -in client.key -passout pass:hunter2 -out encrypted.key");
        this
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn openssl(&self, args: &str) {
        let output = Command::new("openssl").args(args.split_whitespace()).current_dir(&self.0).output();
        let output = output.expect("openssl is on the PATH");
        assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout";
