#pragma once

/// Metrics of a gateway in Prometheus' text format: its own by SGLang's router's names, and those of all
/// workers as one text.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/proxy.h"
#include "gateway/workers.h"

namespace slime::gateway {

std::string metrics_text(const Workers& workers, const Proxy& proxy);

/// Of texts with the address of the worker that each is from: every sample gets a label
/// `worker_addr`, and what belongs to one metric stands together. Lines that are no samples are left
/// out.
std::string merge_metrics(const std::vector<std::pair<std::string, std::string>>& texts);

}  // namespace slime::gateway
