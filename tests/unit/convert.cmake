quarrel_test(convert_test LABEL unit
  SOURCES convert_model_test.cpp convert_safetensors_test.cpp convert_tokenizer_test.cpp
  LINKS quarrel_convert quarrel_model quarrel_test_support)
quarrel_test(convert_quantize_test LABEL unit threads
  SOURCES convert_quantize_test.cpp
  LINKS quarrel_convert quarrel_test_support)
quarrel_test(minilm_test LABEL golden SOURCES minilm_test.cpp
  LINKS quarrel_text quarrel_gguf quarrel_test_support nlohmann_json::nlohmann_json)
