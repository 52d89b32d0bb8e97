// A simulated accelerator behind PyTorch's own extension points. Real tensors stay on the CPU; what is
// real is the profile: torch's profiler calls this code as it calls a vendor's, and Kineto writes the trace.
//
// How it works
//   * A global RecordFunction observer sees every operator of every thread. When a planned operator ends it
//     "launches": the host spins for the launch time, and executions are put on the device's streams.
//   * A stream runs its executions one after the other, in order; streams run side by side. The device's
//     timeline is computed, not run by threads, so it is exact and cheap, yet asynchronous in real time: an
//     execution has happened once the wall clock has passed its end.
//   * synchronize() blocks until then. Executions that have not ended when the profiler stops are dropped,
//     as a device's event buffer that is read too early lacks them.
//   * A Kineto child profiler (IActivityProfiler) turns the launches of its session into activities.
#include <ATen/core/ivalue.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <libkineto.h>
#include <output_base.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace py = pybind11;
using namespace libkineto;

namespace {

constexpr int64_t kMarginNs = 300;  // keeps a runtime event inside its operator in spite of clock conversion
constexpr uint64_t kFirstSequence = 1ULL << 48;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void spin_until(int64_t at_ns) {
  while (now_ns() < at_ns) {
  }
}

void sleep_until(int64_t at_ns) {
  constexpr int64_t kSpinNs = 100'000;
  const int64_t left = at_ns - now_ns();
  if (left > kSpinNs) std::this_thread::sleep_for(std::chrono::nanoseconds(left - kSpinNs));
  spin_until(at_ns);
}

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

// ---------------------------------------------------------------- plan: which operator launches what

struct Execution {
  int stream = 0;
  int device = 0;
  int64_t duration_ns = -1;  // -1: by operator name and shapes
  std::string copy;          // "", "in" (host to device), "out"
};

struct Plan {
  std::map<std::string, std::vector<Execution>> by_op;
  std::vector<Execution> otherwise;
  int64_t launch_ns = 1500;   // host time of one launch
  int64_t latency_ns = 2000;  // from the end of the launch to the earliest start on the device
  bool link_driver = true;    // driver events carry the operator's External id
  bool annotations = false;   // project record_function ranges on the device (gpu_user_annotation)
  std::string runtime_name;   // of launch events; empty: the operator's
  bool colliding_calls = false;  // synchronise calls have the number of the last launching operator as correlation

  const std::vector<Execution>* find(const std::string& op) const {
    const auto found = by_op.find(op);
    if (found != by_op.end()) return &found->second;
    return &otherwise;
  }
};

// ---------------------------------------------------------------- what the profiler's configuration asks for

struct Options {
  std::string raw;
  bool correlate_device_time = true;
  std::optional<int64_t> max_events_per_nc;
  std::optional<std::vector<int64_t>> capture_enabled_for_nc;
};

Options parse_options(const std::string& raw) {
  Options options;
  options.raw = raw;
  if (raw.empty()) return options;
  py::gil_scoped_acquire gil;
  try {
    const auto parsed = py::module_::import("json").attr("loads")(raw);
    if (!py::isinstance<py::dict>(parsed)) return options;
    const auto values = parsed.cast<py::dict>();
    if (values.contains("correlate_device_time"))
      options.correlate_device_time = values["correlate_device_time"].cast<bool>();
    if (values.contains("max_events_per_nc") && !values["max_events_per_nc"].is_none())
      options.max_events_per_nc = values["max_events_per_nc"].cast<int64_t>();
    if (values.contains("capture_enabled_for_nc") && !values["capture_enabled_for_nc"].is_none())
      options.capture_enabled_for_nc = values["capture_enabled_for_nc"].cast<std::vector<int64_t>>();
  } catch (const std::exception&) {
    // Not JSON, or of other types: a configuration for someone else. The raw text stays visible to tests.
  }
  return options;
}

// ---------------------------------------------------------------- device

struct Launch {
  std::string op;
  std::string cache_key;
  uint64_t external_id = 0;  // correlation id of the operator, 0 without profiler
  uint64_t user_id = 0;      // correlation id of the innermost record_function
  uint64_t sequence = 0;
  int64_t thread_id = 0;
  int64_t host_start_ns = 0, host_end_ns = 0;
  int64_t start_ns = 0, end_ns = 0;  // on the device
  int stream = 0, device = 0;
  std::string copy;
  int64_t bytes = 0;
};

struct HostCall {  // a runtime call that launches nothing
  std::string name;
  uint64_t last_external_id = 0;  // of the launches before it
  int64_t thread_id = 0;
  int64_t start_ns = 0, end_ns = 0;
};

class Device {
 public:
  static Device& instance() {
    static Device device;
    return device;
  }

  // Puts one execution on its stream; the caller has spent the launch time.
  void enqueue(Launch& launch, int64_t duration_ns, int64_t latency_ns) {
    const std::lock_guard<std::mutex> guard(mutex_);
    int64_t& free_at = free_at_[{launch.device, launch.stream}];
    launch.sequence = next_sequence_++;
    launch.start_ns = std::max(free_at, launch.host_end_ns + latency_ns);
    launch.end_ns = launch.start_ns + duration_ns;
    free_at = launch.end_ns;
    ++launched_;
    if (recording_) launches_.push_back(launch);
  }

  void synchronize(const std::string& name) {
    const int64_t start = now_ns();
    int64_t until = 0;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      for (const auto& [stream, free_at] : free_at_) until = std::max(until, free_at);
    }
    sleep_until(until);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (recording_) calls_.push_back({name, launches_.empty() ? 0 : launches_.back().external_id, systemThreadId(), start, now_ns()});
  }

  int64_t pending() {
    const std::lock_guard<std::mutex> guard(mutex_);
    const int64_t now = now_ns();
    return std::count_if(free_at_.begin(), free_at_.end(), [now](const auto& e) { return e.second > now; });
  }

  int64_t launched() const { return launched_; }

  void start_recording() {
    const std::lock_guard<std::mutex> guard(mutex_);
    launches_.clear();
    calls_.clear();
    recording_ = true;
  }

  std::pair<std::vector<Launch>, std::vector<HostCall>> stop_recording() {
    const std::lock_guard<std::mutex> guard(mutex_);
    recording_ = false;
    return {std::exchange(launches_, {}), std::exchange(calls_, {})};
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, int64_t> free_at_;
  std::vector<Launch> launches_;
  std::vector<HostCall> calls_;
  uint64_t next_sequence_ = kFirstSequence;
  std::atomic<int64_t> launched_{0};
  bool recording_ = false;
};

// ---------------------------------------------------------------- observer of the operators

std::mutex plan_mutex;
std::shared_ptr<const Plan> current_plan = std::make_shared<Plan>();

std::shared_ptr<const Plan> plan() {
  const std::lock_guard<std::mutex> guard(plan_mutex);
  return current_plan;
}

struct Frame {
  uint64_t external_id = 0;
  bool ended = false;
};

// Operators now running on this thread. torch's observer runs after this global one, so the id that it
// pushes while an operator starts belongs to the frame that was pushed last.
thread_local std::vector<std::shared_ptr<Frame>> frames;
thread_local std::vector<uint64_t> user_ids;

void drop_ended_frames() {
  while (!frames.empty() && frames.back()->ended) frames.pop_back();
}

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream text;
  text << '[';
  for (int64_t i = 0; i < tensor.dim(); ++i) text << (i ? "," : "") << tensor.size(i);
  text << "]:" << tensor.dtype().name();
  return text.str();
}

struct Running : at::ObserverContext {
  std::shared_ptr<Frame> frame = std::make_shared<Frame>();
  std::shared_ptr<const Plan> plan;
  const std::vector<Execution>* executions = nullptr;
  std::string op;
  std::string signature;  // shapes and dtypes of the tensor inputs
  int64_t bytes = 0;      // of the first tensor input
};

int64_t duration_ns(const std::string& op, const std::string& signature, size_t index) {
  return 4'001 + static_cast<int64_t>(fnv1a(op + "|" + signature + "|" + std::to_string(index)) % 36'000);
}

std::string cache_key(const std::string& op, const std::string& signature) {
  const auto colons = op.rfind(':');
  const std::string base = colons == std::string::npos ? op : op.substr(colons + 1);
  std::ostringstream key;
  key << base << "--" << (signature.empty() ? "_" : signature) << ":S(C)_i1:";
  const std::string half = fmt::format("{:016x}", fnv1a(op + signature));
  key << half << fmt::format("{:016x}", fnv1a(half));
  return key.str();
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  drop_ended_frames();
  auto running = std::make_unique<Running>();
  if (fn.scope() == at::RecordScope::USER_SCOPE) return running;  // torch pushes a user id for these
  frames.push_back(running->frame);
  running->plan = plan();
  running->executions = running->plan->find(fn.name());
  if (running->executions->empty()) return running;
  running->op = fn.name();
  for (const auto& input : fn.inputs()) {
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    const auto& tensor = input.toTensor();
    if (running->signature.empty()) running->bytes = tensor.numel() * tensor.element_size();
    running->signature += "_" + shape_text(tensor);
  }
  return running;
}

void launch(const Running& running, size_t index) {
  const Execution& execution = (*running.executions)[index];
  Launch launch;
  launch.op = running.op;
  launch.cache_key = cache_key(running.op, running.signature);
  launch.external_id = running.frame->external_id;
  launch.user_id = user_ids.empty() ? 0 : user_ids.back();
  launch.thread_id = systemThreadId();
  launch.stream = execution.stream;
  launch.device = execution.device;
  launch.copy = execution.copy;
  launch.bytes = running.bytes;
  launch.host_start_ns = now_ns() + kMarginNs;
  launch.host_end_ns = launch.host_start_ns + running.plan->launch_ns;
  spin_until(launch.host_end_ns + kMarginNs);
  const int64_t fixed = execution.duration_ns;
  Device::instance().enqueue(
      launch, fixed >= 0 ? fixed : duration_ns(running.op, running.signature, index), running.plan->latency_ns);
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  auto* running = static_cast<Running*>(context);
  if (running == nullptr) return;
  if (running->executions != nullptr) {
    for (size_t index = 0; index < running->executions->size(); ++index) launch(*running, index);
  }
  running->frame->ended = true;
  drop_ended_frames();
}

// ---------------------------------------------------------------- Kineto session

class Session : public IActivityProfilerSession {
 public:
  Session(std::set<ActivityType> wanted, Options options) : wanted_(std::move(wanted)), options_(std::move(options)) {}

  void start() override {
    Device::instance().start_recording();
    recording_ = true;
    status_ = TraceStatus::RECORDING;
  }

  void stop() override {
    stopped_ns_ = now_ns();
    recording_ = false;
    auto [launches, calls] = Device::instance().stop_recording();
    launches_ = std::move(launches);
    calls_ = std::move(calls);
    settings_ = plan();
    status_ = TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }
  void processTrace(ActivityLogger& logger) override { processTrace(logger, nullptr, 0, 0); }

  void processTrace(ActivityLogger& logger, getLinkedActivityCallback linked, int64_t, int64_t) override {
    drop_what_the_buffer_lost();
    int32_t correlation = 0;
    for (const auto& launch : launches_) emit(launch, ++correlation, linked);
    for (const auto& call : calls_) emit(call);
    if (settings_->annotations && linked) emit_annotations(linked);
    std::sort(activities_.begin(), activities_.end(),
              [](const auto& a, const auto& b) { return a->startTime < b->startTime; });
    for (const auto& activity : activities_) activity->log(logger);
  }

  std::unique_ptr<DeviceInfo> getDeviceInfo() override {
    return std::make_unique<DeviceInfo>(DeviceInfo{0, kExceedMaxPid, "neuron", "neuron 0"});
  }

  std::vector<ResourceInfo> getResourceInfos() override {
    std::map<std::pair<int, int>, bool> seen;
    std::vector<ResourceInfo> infos;
    for (const auto& launch : launches_)
      if (seen.emplace(std::make_pair(launch.device, launch.stream), true).second)
        infos.push_back({launch.stream, launch.stream, launch.device, "stream " + std::to_string(launch.stream)});
    return infos;
  }

  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override {
    auto buffer = std::make_unique<CpuTraceBuffer>();
    buffer->span = span_;
    buffer->gpuOpCount = static_cast<int>(launches_.size());
    for (auto& activity : activities_) buffer->activities.push_back(std::move(activity));
    activities_.clear();
    return buffer;
  }

  void pushCorrelationId(uint64_t id) override {
    if (!frames.empty() && !frames.back()->ended && frames.back()->external_id == 0) frames.back()->external_id = id;
  }
  void pushUserCorrelationId(uint64_t id) override {
    if (recording_) user_ids.push_back(id);
  }
  void popUserCorrelationId() override {
    if (!user_ids.empty()) user_ids.pop_back();
  }

 private:
  bool wants(ActivityType type) const { return wanted_.count(type) > 0; }

  // max_events_per_nc is a ring buffer: the oldest are overwritten.
  void drop_what_the_buffer_lost() {
    const auto core_is_captured = [this](int device) {
      if (!options_.capture_enabled_for_nc) return true;
      const auto& cores = *options_.capture_enabled_for_nc;
      return std::find(cores.begin(), cores.end(), device) != cores.end();
    };
    std::map<int, int64_t> kept;
    for (auto launch = launches_.rbegin(); launch != launches_.rend(); ++launch) {
      const bool ended = launch->end_ns <= stopped_ns_;
      bool visible = ended && core_is_captured(launch->device);
      if (visible && options_.max_events_per_nc) visible = ++kept[launch->device] <= *options_.max_events_per_nc;
      if (!visible) launch->end_ns = 0;
    }
  }

  GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t start_ns, int64_t end_ns,
                            int32_t device, int32_t resource) {
    auto activity = std::make_unique<GenericTraceActivity>(span_, type, name);
    activity->startTime = start_ns;
    activity->endTime = end_ns;
    activity->device = device;
    activity->resource = resource;
    activities_.push_back(std::move(activity));
    return *activities_.back();
  }

  void emit(const Launch& launch, int32_t correlation, const getLinkedActivityCallback& linked) {
    const ITraceActivity* op = linked && launch.external_id ? linked(static_cast<int32_t>(launch.external_id)) : nullptr;
    const bool visible = launch.end_ns != 0;
    const bool device_time = visible && options_.correlate_device_time;
    if (wants(ActivityType::PRIVATEUSE1_RUNTIME)) {
      const std::string& name = settings_->runtime_name.empty() ? launch.op : settings_->runtime_name;
      auto& runtime = add(ActivityType::PRIVATEUSE1_RUNTIME, name, launch.host_start_ns, launch.host_end_ns, processId(),
                          static_cast<int32_t>(launch.thread_id));
      link(runtime, launch, correlation, op);
      if (device_time) flow(runtime, correlation, true);
    }
    if (!visible) return;
    if (wants(ActivityType::PRIVATEUSE1_DRIVER)) {
      auto& driver = add(ActivityType::PRIVATEUSE1_DRIVER, launch.op, launch.host_end_ns, launch.end_ns, processId(),
                         launch.stream);
      link(driver, launch, correlation, settings_->link_driver ? op : nullptr);
      driver.addMetadataQuoted("neff_cache_key", launch.cache_key);
    }
    if (device_time) emit_device(launch, correlation, op);
  }

  void emit_device(const Launch& launch, int32_t correlation, const ITraceActivity* op) {
    const bool copies = !launch.copy.empty();
    const auto type = copies ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
    if (!wants(type)) return;
    std::string name = launch.cache_key;
    if (copies) name = launch.copy == "in" ? "Memcpy HtoD (Host -> Device)" : "Memcpy DtoH (Device -> Host)";
    auto& work = add(type, name, launch.start_ns, launch.end_ns, launch.device, launch.stream);
    link(work, launch, correlation, op);
    work.addMetadata("device", launch.device);
    work.addMetadata("stream", launch.stream);
    if (copies) work.addMetadata("bytes", launch.bytes);
    flow(work, correlation, false);
  }

  void link(GenericTraceActivity& activity, const Launch& launch, int32_t correlation, const ITraceActivity* op) {
    activity.id = correlation;
    activity.linked = op;
    activity.addMetadata("correlation", correlation);
    activity.addMetadata("nrt_sequence_id", launch.sequence);
  }

  void flow(GenericTraceActivity& activity, int32_t id, bool start) {
    activity.flow.id = static_cast<uint32_t>(id);
    activity.flow.type = kLinkAsyncCpuGpu;
    activity.flow.start = start ? 1 : 0;
  }

  void emit(const HostCall& call) {
    if (!wants(ActivityType::PRIVATEUSE1_RUNTIME)) return;
    auto& activity = add(ActivityType::PRIVATEUSE1_RUNTIME, call.name, call.start_ns, call.end_ns, processId(),
                         static_cast<int32_t>(call.thread_id));
    if (!settings_->colliding_calls) return;
    activity.id = static_cast<int32_t>(call.last_external_id);
    activity.addMetadata("correlation", call.last_external_id);
  }

  void emit_annotations(const getLinkedActivityCallback& linked) {
    if (!wants(ActivityType::GPU_USER_ANNOTATION) || !options_.correlate_device_time) return;
    struct Extent {
      int64_t start_ns, end_ns;
    };
    std::map<std::tuple<uint64_t, int, int>, Extent> extents;
    for (const auto& launch : launches_) {
      if (launch.user_id == 0 || launch.end_ns == 0) continue;
      const auto key = std::make_tuple(launch.user_id, launch.device, launch.stream);
      auto& extent = extents.try_emplace(key, Extent{launch.start_ns, launch.end_ns}).first->second;
      extent.start_ns = std::min(extent.start_ns, launch.start_ns);
      extent.end_ns = std::max(extent.end_ns, launch.end_ns);
    }
    for (const auto& [key, extent] : extents) {
      const auto [user_id, device, stream] = key;
      const ITraceActivity* annotation = linked(static_cast<int32_t>(user_id));
      if (annotation == nullptr) continue;
      auto& projected = add(ActivityType::GPU_USER_ANNOTATION, annotation->name(), extent.start_ns, extent.end_ns,
                            device, stream);
      projected.id = static_cast<int32_t>(user_id);
      projected.linked = annotation;
    }
  }

  std::set<ActivityType> wanted_;
  Options options_;
  TraceSpan span_{0, 0, "privateuse1 test backend"};
  std::atomic<bool> recording_{false};
  int64_t stopped_ns_ = 0;
  std::shared_ptr<const Plan> settings_;
  std::vector<Launch> launches_;
  std::vector<HostCall> calls_;
  std::deque<std::unique_ptr<GenericTraceActivity>> activities_;
};

std::mutex config_mutex;
std::vector<std::string> seen_configs;

class Profiler : public IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return available_; }

  std::unique_ptr<IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                      const Config& config) override {
    {
      const std::lock_guard<std::mutex> guard(config_mutex);
      seen_configs.push_back(config.getCustomConfig());
    }
    return std::make_unique<Session>(wanted, parse_options(config.getCustomConfig()));
  }

  std::unique_ptr<IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                      const Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_{"privateuse1_test_backend"};
  std::set<ActivityType> available_{ActivityType::CONCURRENT_KERNEL,   ActivityType::GPU_MEMCPY,
                                    ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME,
                                    ActivityType::PRIVATEUSE1_DRIVER};
};

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
        [] { return std::make_unique<Profiler>(); });
    at::addGlobalCallback(at::RecordFunctionCallback(&on_start, &on_end).needsInputs(true));
  });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Execution>(m, "Execution")
      .def(py::init([](int stream, int device, int64_t duration, std::string copy) {
             return Execution{stream, device, duration, std::move(copy)};
           }),
           py::arg("stream"), py::arg("device"), py::arg("duration_ns"), py::arg("copy"));
  m.def("install", &install);
  m.def("set_plan", [](std::map<std::string, std::vector<Execution>> by_op, std::vector<Execution> otherwise,
                       int64_t launch_ns, int64_t latency_ns, bool link_driver, bool annotations,
                       std::string runtime_name, bool colliding_calls) {
    auto next = std::make_shared<Plan>();
    *next = {std::move(by_op), std::move(otherwise), launch_ns, latency_ns, link_driver, annotations,
             std::move(runtime_name), colliding_calls};
    const std::lock_guard<std::mutex> guard(plan_mutex);
    current_plan = std::move(next);
  });
  m.def("synchronize", [](const std::string& name) { Device::instance().synchronize(name); },
        py::call_guard<py::gil_scoped_release>());
  m.def("busy_streams", [] { return Device::instance().pending(); });
  m.def("launched", [] { return Device::instance().launched(); });
  m.def("duration_ns", &duration_ns);
  m.def("cache_key", &cache_key);
  m.def("configs", [] {
    const std::lock_guard<std::mutex> guard(config_mutex);
    return seen_configs;
  });
}
