//! Says that long work goes on. Nothing is drawn where stderr is no terminal, or programs read along.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::arguments::Arguments;

/// Of work whose length is not known: counts what is done.
pub(crate) fn counting(arguments: &Arguments, what: &str) -> ProgressBar {
    ticking(styled(
        arguments,
        ProgressBar::new_spinner(),
        &format!("{{spinner}} {{pos}} {what}, {{rate}}, {{elapsed}}"),
    ))
}

/// Of work whose length is known.
pub(crate) fn towards(arguments: &Arguments, total: u64, what: &str) -> ProgressBar {
    styled(arguments, ProgressBar::new(total), &format!("{{wide_bar}} {{pos}}/{{len}} {what}, {{eta}}"))
}

/// Of one step of which nothing is heard before its end.
pub(crate) fn waiting(arguments: &Arguments, what: &str) -> ProgressBar {
    ticking(styled(arguments, ProgressBar::new_spinner(), &format!("{{spinner}} {what}, {{elapsed}}")))
}

fn ticking(bar: ProgressBar) -> ProgressBar {
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Whole things a second.
fn rate(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{:.0}/s", state.per_sec());
}

fn styled(arguments: &Arguments, bar: ProgressBar, template: &str) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", rate));
    }
    bar
}
