// A model library for qnn-net-run, as qnn-model-lib-generator makes them: y = relu(x) + x, uint8.
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include "QnnInterface.h"
#include "QnnLog.h"
#include "QnnTypes.h"

enum ModelError { OK = 0, WRONG = 1 };
struct GraphInfo {
  Qnn_GraphHandle_t graph;
  char *name;
  Qnn_Tensor_t *inputs;
  uint32_t inputCount;
  Qnn_Tensor_t *outputs;
  uint32_t outputCount;
};
struct GraphConfig {
  char *name;
  const QnnGraph_Config_t **configs;
};

static uint32_t shape[3] = {1, 8, 64};

static Qnn_Tensor_t tensor(const char *name, Qnn_TensorType_t type) {
  Qnn_Tensor_t made;
  memset(&made, 0, sizeof made);
  made.version = QNN_TENSOR_VERSION_1;
  made.v1.name = name;
  made.v1.type = type;
  made.v1.dataFormat = QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER;
  made.v1.dataType = QNN_DATATYPE_UFIXED_POINT_8;
  made.v1.quantizeParams.encodingDefinition = QNN_DEFINITION_DEFINED;
  made.v1.quantizeParams.quantizationEncoding = QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
  made.v1.quantizeParams.scaleOffsetEncoding.scale = 0.0078125f;
  made.v1.quantizeParams.scaleOffsetEncoding.offset = -128;
  made.v1.rank = 3;
  made.v1.dimensions = shape;
  made.v1.memType = QNN_TENSORMEMTYPE_RAW;
  return made;
}

static Qnn_Tensor_t *kept(const Qnn_Tensor_t &of) {
  auto *made = static_cast<Qnn_Tensor_t *>(malloc(sizeof of));
  *made = of;
  made->v1.name = strdup(of.v1.name);
  made->v1.dimensions = static_cast<uint32_t *>(malloc(sizeof shape));
  memcpy(made->v1.dimensions, shape, sizeof shape);
  return made;
}

static bool node(QNN_INTERFACE_VER_TYPE &qnn, Qnn_GraphHandle_t graph, const char *name,
                 const char *type, Qnn_Tensor_t *in, uint32_t count, Qnn_Tensor_t *out) {
  Qnn_OpConfig_t op;
  memset(&op, 0, sizeof op);
  op.version = QNN_OPCONFIG_VERSION_1;
  op.v1.name = name;
  op.v1.packageName = "qti.aisw";
  op.v1.typeName = type;
  op.v1.numOfInputs = count;
  op.v1.inputTensors = in;
  op.v1.numOfOutputs = 1;
  op.v1.outputTensors = out;
  return qnn.graphAddNode(graph, op) == 0;
}

extern "C" __attribute__((visibility("default"))) ModelError QnnModel_composeGraphs(
    Qnn_BackendHandle_t, QNN_INTERFACE_VER_TYPE qnn, Qnn_ContextHandle_t context,
    const GraphConfig **configs, const uint32_t count, GraphInfo ***graphs, uint32_t *graphCount,
    bool, QnnLog_Callback_t, QnnLog_Level_t) {
  Qnn_GraphHandle_t graph = nullptr;
  const QnnGraph_Config_t **mine = nullptr;
  for (uint32_t at = 0; at < count; at++)
    if (!strcmp(configs[at]->name, "tiny")) mine = configs[at]->configs;
  if (qnn.graphCreate(context, "tiny", mine, &graph)) return WRONG;
  Qnn_Tensor_t x = tensor("x", QNN_TENSOR_TYPE_APP_WRITE);
  Qnn_Tensor_t between = tensor("between", QNN_TENSOR_TYPE_NATIVE);
  Qnn_Tensor_t y = tensor("y", QNN_TENSOR_TYPE_APP_READ);
  for (Qnn_Tensor_t *one : {&x, &between, &y})
    if (qnn.tensorCreateGraphTensor(graph, one)) return WRONG;
  if (!node(qnn, graph, "Relu1", "Relu", &x, 1, &between)) return WRONG;
  Qnn_Tensor_t both[2] = {between, x};
  if (!node(qnn, graph, "Add1", "ElementWiseAdd", both, 2, &y)) return WRONG;
  auto *info = static_cast<GraphInfo *>(calloc(1, sizeof(GraphInfo)));
  *info = {graph, strdup("tiny"), kept(x), 1, kept(y), 1};
  *graphs = static_cast<GraphInfo **>(malloc(sizeof(GraphInfo *)));
  (*graphs)[0] = info;
  *graphCount = 1;
  return OK;
}

extern "C" __attribute__((visibility("default"))) ModelError QnnModel_freeGraphsInfo(GraphInfo ***,
                                                                                     uint32_t) {
  return OK;
}
