quarrel_test(app_profile_test LABEL unit SOURCES app_profile_test.cpp LINKS quarrel_app)
