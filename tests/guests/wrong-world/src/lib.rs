//! A component without a handler, for tests of what the host refuses.

#[allow(missing_docs)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "greeter" });

    struct Greeter;
    impl Guest for Greeter {
        fn greet(name: String) -> String {
            format!("hello {name}")
        }
    }
    export!(Greeter);
}
