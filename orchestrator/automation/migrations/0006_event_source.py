"""The sources of events are listed in one place, beside the model. The column stays as it is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("automation", "0005_sensor_release")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="source",
            field=models.CharField(
                help_text="What reported it, such as `api`, `hook` or `timer`.", max_length=60
            ),
        ),
    ]
