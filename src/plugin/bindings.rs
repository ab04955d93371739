//! Generated from `wit/`, one module for each version of the contract that is served.

/// The contract `wasmill:handler@0.1.0`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(super) mod v0_1 {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "wasmill:handler/handler",
        // An event is lowered from where it lies: its payload is copied once, into the guest.
        ownership: Borrowing { duplicate_if_necessary: false },
        imports: {
            "wasi:keyvalue/store.[method]bucket.get": async,
            "wasi:keyvalue/store.[method]bucket.exists": async,
            "wasi:keyvalue/store.[method]bucket.list-keys": async,
            "wasi:keyvalue/atomics.increment": async,
            "wasi:keyvalue/batch.get-many": async,
        },
        exports: { default: async },
        with: { "wasi:keyvalue/store.bucket": crate::state::Bucket },
    });
}

/// The version that [`v0_1`] serves; later patches of it are compatible.
pub(super) const CONTRACT_VERSION: &str = "0.1.0";

/// The interface whose version is a component's contract version.
pub(super) const CONTRACT_INTERFACE: &str = "wasmill:handler/types@";

/// Whether a component built for the contract version `found` can be called.
pub(super) fn serves(found: &str) -> bool {
    // Below 1.0.0, versions with the same first two numbers are compatible.
    let line = |version: &str| {
        let mut numbers = version.splitn(3, '.');
        Some((numbers.next()?.to_owned(), numbers.next()?.to_owned()))
    };
    line(found).is_some() && line(found) == line(CONTRACT_VERSION)
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn patches_are_served_and_other_lines_are_not() {
        assert!(serves("0.1.0"));
        assert!(serves("0.1.7"));
        assert!(!serves("0.2.0"));
        assert!(!serves("1.1.0"));
        assert!(!serves(""));
    }
}
