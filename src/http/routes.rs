//! What is answered on which path.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::engine::Conditions;
use crate::metrics;

/// Answers GET (and HEAD) on its paths; another method is 405, another path 404.
pub(super) fn router(conditions: Arc<Conditions>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .with_state(conditions)
}

/// The process answers: that is all that it means to live.
async fn livez() -> Response {
    json(StatusCode::OK, &serde_json::json!({ "live": true }))
}

async fn readyz(State(conditions): State<Arc<Conditions>>) -> Response {
    let readiness = conditions.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &readiness)
}

async fn scrape(State(conditions): State<Arc<Conditions>>) -> Response {
    let text = conditions.metrics().text(&conditions.now());
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => (status, [(CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
