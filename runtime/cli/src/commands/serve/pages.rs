//! The status pages of `watm serve`.

use std::fmt;

use serde_json::Value;

use super::service::Service;
use super::status;
use crate::reporting::web::Pages;

impl Pages for Service {
    async fn metrics(&self) -> Result<String, fmt::Error> {
        let mut groups = Vec::new();
        for frontend in self.frontends() {
            groups.push(frontend.counters().await);
        }
        self.metrics.page(groups)
    }

    async fn status(&self) -> Value {
        status::of(self).await
    }

    async fn ready(&self) -> Result<(), String> {
        status::ready(self).await
    }
}
