//! The command line as a user sees it: commands and their exact output, in `tests/cli`.

#[test]
fn commands_answer_as_written() {
    // Nothing of the caller's environment is to change an answer.
    let cases = trycmd::TestCases::new();
    cases.env("WASMILL_LOG", "warn").env("NO_COLOR", "1").case("tests/cli/*.trycmd").run();
}
